// rehearse compare DIR TRACE with what traces of real loops have: a host that runs ahead of the device, a last step
// mark without kernels, gated activations in three operators, collectives whose arguments nobody recorded, copies that
// are no kernels. The traces are made here, in Kineto's format, with times that were made up.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

const char* const kTwoLayers =
    "rehearse: 1\n"
    "model: {family: llama, layers: 2, hidden: 1024, heads: 8, ffn_hidden: 2816, vocab: 32000, max_seq_len: 2048}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\nframework: torch-fsdp2\n"
    "plan: {zero: 3, micro_batch: 2, recompute: none}\n"
    "training: {global_batch: 16, seq_len: 2048, precision: bf16}\n";

// The host's calls follow each other every 10 us; the device has a stream of kernels of its own clock.
class Loop {
 public:
  // An operator on tensors of 16 bits, and the kernel that it launches.
  void call(const char* op, const Json& dims, const char* kernel, double us, const char* category = "kernel") {
    Json types = Json::array();
    for (std::size_t i = 0; i < dims.size(); ++i) types.push_back("c10::BFloat16");
    ++id_;
    event("cpu_op", op, host_, 8, {{"External id", id_}, {"Input Dims", dims}, {"Input type", types}});
    launch(id_);
    event(category, kernel, device_, us, {{"External id", id_}, {"correlation", id_}, {"device", 0}, {"stream", 7}});
    device_ += us, host_ += 10;
  }
  // A kernel that no operator launched.
  void kernel(const char* name, double us) {
    ++id_;
    launch(0);
    event("kernel", name, device_, us, {{"External id", 0}, {"correlation", id_}, {"device", 0}, {"stream", 7}});
    device_ += us, host_ += 10;
  }
  // From the mark before to here.
  void mark(int number) {
    event("user_annotation", "ProfilerStep#" + std::to_string(number), from_, host_ - from_ - 1, Json::object());
    from_ = host_;
  }
  std::string text() const { return Json{{"traceEvents", events_}}.dump(); }

 private:
  void event(const std::string& category, const std::string& name, double ts, double us, const Json& args) {
    events_.push_back({{"ph", "X"}, {"cat", category}, {"name", name}, {"ts", ts}, {"dur", us}, {"args", args}});
  }
  void launch(int id) {
    event("cuda_runtime", "cudaLaunchKernel", host_ + 5, 2, {{"External id", id}, {"correlation", id_}});
  }

  Json events_ = Json::array();
  int id_ = 0;
  double host_ = 1000, device_ = 50000, from_ = 1000;
};

constexpr double kGateUs = 111, kSiluUs = 20, kProductUs = 30, kCollectiveUs = 140, kUnlinkedUs = 50, kCopyUs = 25,
                 kInputUs = 7;
constexpr double kStepUs = 2 * kGateUs + kSiluUs + kProductUs + kCollectiveUs + kUnlinkedUs + kCopyUs + kInputUs;

// What torchtitan's feed-forward layer launches, silu(w1 x) * w3 x, and what lies around it.
void one_step(Loop& loop) {
  const Json wide = {2, 2048, 2816};
  loop.call("aten::copy_", {{2, 2048}, {2, 2048}}, "Memcpy HtoD (Pinned -> Device)", kInputUs, "gpu_memcpy");
  loop.call("aten::mm", {{4096, 1024}, {1024, 2816}}, "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", kGateUs);
  loop.call("aten::silu", Json::array({wide}), "void at::native::vectorized_elementwise_kernel<8, silu>", kSiluUs);
  loop.call("aten::mm", {{4096, 1024}, {1024, 2816}}, "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", kGateUs);
  loop.call("aten::mul", {wide, wide}, "void at::native::vectorized_elementwise_kernel<8, mul>", kProductUs);
  loop.call("aten::empty", {{1}}, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kCollectiveUs);
  loop.call("aten::copy_", {{12847104}, {12847104}}, "Memcpy DtoD (Device -> Device)", kCopyUs, "gpu_memcpy");
  loop.kernel("kernel_of_no_operator", kUnlinkedUs);
}

const Json* class_in(const Json& compared, const std::string& name) {
  for (const Json& c : compared["classes"])
    if (c["class"] == name) return &c;
  return nullptr;
}

TEST(CompareTrace, StepsOfAHostThatRunsAhead) {
  const Folder folder;
  const std::string simulated = folder / "simulated";
  ASSERT_EQ(run({"simulate", folder.write("run.yaml", kTwoLayers), "-o", simulated}).status, 0);
  Loop loop;
  for (int step = 3; step < 6; ++step) {
    one_step(loop);
    loop.mark(step);
  }
  loop.mark(6);  // begun, and the loop ended
  const Outcome r = run({"compare", simulated, folder.write("rank0.json", loop.text()), "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "ProfilerStep#5 of")) << r.out;
  const Json j = Json::parse(read(folder / "out/compare.json"));
  // The host was done in 80 us.
  EXPECT_NEAR(j["measured"]["step_time_s"].get<double>(), kStepUs * 1e-6, 1e-12) << r.out;

  double all = 0;
  for (const Json& c : j["classes"]) all += c["measured_s"].get<double>();
  EXPECT_NEAR(all, kStepUs * 1e-6, 1e-12) << "every kernel and copy of the step is in a class";
  const auto expect = [&](const char* name, std::size_t calls, std::size_t matched, double us) {
    const Json* const c = class_in(j, name);
    ASSERT_NE(c, nullptr) << name;
    EXPECT_EQ((*c)["calls"].get<std::size_t>(), calls) << name;
    EXPECT_EQ((*c)["mapped"].get<std::size_t>(), matched) << name;
    EXPECT_NEAR((*c)["measured_s"].get<double>(), us * 1e-6, 1e-12) << name;
  };
  expect("gemm", 2, 1, 2 * kGateUs);  // the program has both in one
  expect("activation", 1, 1, kSiluUs + kProductUs);
  expect("collectives", 1, 1, kCollectiveUs);
  expect("copies", 1, 1, kCopyUs);
  expect("not mapped", 2, 0, kUnlinkedUs + kInputUs);
  for (const char* part : {"kernel_of_no_operator", "linked to no operator", "a copy between memories"})
    EXPECT_TRUE(has(r.out, part)) << part << '\n' << r.out;
}

// What a loop prints of its loss behind the last step is no step, nor are kernels behind a mark the step before it.
TEST(CompareTrace, CopiesAndKernelsBehindTheStepsAreNoSteps) {
  const Folder folder;
  const std::string simulated = folder / "simulated";
  ASSERT_EQ(run({"simulate", folder.write("run.yaml", kTwoLayers), "-o", simulated}).status, 0);
  const auto compared = [&](const Loop& loop) {
    const Outcome r = run({"compare", simulated, folder.write("rank0.json", loop.text()), "-o", folder / "out"});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.out;
  };
  Loop printed;
  for (int step = 3; step < 6; ++step) {
    one_step(printed);
    printed.mark(step);
  }
  printed.call("aten::copy_", {{1}, {1}}, "Memcpy DtoH (Device -> Pinned)", 2, "gpu_memcpy");
  printed.mark(6);
  EXPECT_TRUE(has(compared(printed), "ProfilerStep#5 of"));

  Loop evaluated;
  one_step(evaluated);
  evaluated.mark(3);
  one_step(evaluated);
  compared(evaluated);
  EXPECT_NEAR(Json::parse(read(folder / "out/compare.json"))["measured"]["step_time_s"].get<double>(), kStepUs * 1e-6,
              1e-12);
}

TEST(CompareTrace, FilesOfSeveralRanksAreRefused) {
  const Folder folder;
  const std::string simulated = folder / "simulated";
  ASSERT_EQ(run({"simulate", folder.write("run.yaml", kTwoLayers), "-o", simulated}).status, 0);
  Loop loop;
  one_step(loop);
  loop.mark(3);
  one_step(loop);
  loop.mark(3);
  const Outcome r = run({"compare", simulated, folder.write("ranks.json", loop.text())});
  EXPECT_EQ(r.status, 2) << r.out;
  EXPECT_TRUE(has(r.err, "has ProfilerStep#3 more than once")) << r.err;
}

// An activation without a gate, and later a product of tensors of its size.
TEST(CompareTrace, AnUngatedSiluTakesNoLaterProduct) {
  const Folder folder;
  const std::string simulated = folder / "simulated";
  ASSERT_EQ(run({"simulate", folder.write("run.yaml", kTwoLayers), "-o", simulated}).status, 0);
  const Json wide = {2, 2048, 2816};
  Loop loop;
  loop.call("aten::silu", Json::array({wide}), "void at::native::vectorized_elementwise_kernel<8, silu>", kSiluUs);
  for (int i = 0; i < 2; ++i) loop.call("aten::mm", {{4096, 1024}, {1024, 2816}}, "nvjet_hsh_128x256", kGateUs);
  loop.call("aten::mul", {wide, wide}, "void at::native::vectorized_elementwise_kernel<8, mul>", kProductUs);
  loop.mark(3);
  const Outcome r = run({"compare", simulated, folder.write("rank0.json", loop.text()), "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "a product of two tensors")) << r.out;
}

}  // namespace
}  // namespace rehearse::e2e
