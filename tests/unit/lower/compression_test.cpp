// plan.gradient_compression: what is sent, moved and kept of a bucket, against hand counts.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

// 1,000 x 999 weights and 1,000 biases: 10^6 parameters in one bucket.
constexpr const char* kMillion =
    "rehearse: 1\nmodel: {family: mlp, widths: [999, 1000], loss: mse}\n"
    "cluster: {topology: dgx-a100, gpus: 4}\nframework: rehearse\n"
    "training: {global_batch: 4, precision: fp32, clip: 0}\n";

struct Sent {
  std::map<std::string, std::int64_t> bytes;  // on the wire, by kind: as the collective has them
  std::int64_t read = 0, written = 0;         // by the kernels that compress
  std::int64_t decompress_read = 0, decompress_written = 0;
  std::int64_t kept = 0;  // beside the gradients
};

Sent sent_by(const std::string& chain, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"plan.gradient_compression=[" + chain + "]"};
  all.insert(all.end(), more.begin(), more.end());
  const plan::Scenario scenario = scenario_from(kMillion, all);
  const program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "") << chain;
  const program::Role& role = program.roles.front();
  Sent sent;
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) {
      if (std::holds_alternative<program::Collective>(op.shape))
        sent.bytes[std::string(program::kind_name(op.shape))] += program::collective_bytes(op);
      const auto* c = std::get_if<program::Compress>(&op.shape);
      if (c == nullptr) continue;
      const program::Work work = program::work_of(role, op);
      (c->decompress ? sent.decompress_read : sent.read) += work.bytes_read;
      (c->decompress ? sent.decompress_written : sent.written) += work.bytes_written;
    }
  for (const program::Buffer& b : role.buffers)
    if (b.name.starts_with("residual") || b.name.starts_with("right.bucket") || b.name.starts_with("local_momentum"))
      sent.kept += b.bytes();
  return sent;
}

using ByKind = std::map<std::string, std::int64_t>;
constexpr std::int64_t kM = 1'000'000;

TEST(GradientCompression, SendsTheBytesOfItsChain) {
  EXPECT_EQ(sent_by("none").bytes, (ByKind{{"all_reduce", 4 * kM}}));
  const std::vector<std::string> whole = {"plan.gradient_chunk=0"};
  EXPECT_EQ(sent_by("int8", whole).bytes, (ByKind{{"all_gather", 4 * (kM + 8)}})) << "of four ranks";
  EXPECT_EQ(sent_by("int4", whole).bytes, (ByKind{{"all_gather", 4 * (kM / 2 + 8)}}));
  EXPECT_EQ(sent_by("int2", whole).bytes, (ByKind{{"all_gather", 4 * (kM / 4 + 8)}}));
  EXPECT_EQ(sent_by("sign", whole).bytes, (ByKind{{"all_gather", 4 * (kM / 8 + 4)}}));
  EXPECT_EQ(sent_by("int8").bytes, (ByKind{{"all_gather", 4 * (kM + 8 * 489)}})) << "489 chunks of 2,048";
  EXPECT_EQ(sent_by("top_k").bytes, (ByKind{{"all_gather", 4 * 8 * kM / 100}})) << "values and places";
  EXPECT_EQ(sent_by("top_k, int8", whole).bytes, (ByKind{{"all_gather", 4 * (5 * kM / 100 + 8)}}));
  EXPECT_EQ(sent_by("random_k").bytes, (ByKind{{"all_reduce", 4 * kM / 100}})) << "the same places everywhere";
  EXPECT_EQ(sent_by("random_k, int8", whole).bytes, (ByKind{{"all_gather", 4 * (kM / 100 + 8)}}));
}

// (n + m) r numbers of the matrix, and the biases whole.
TEST(GradientCompression, PowerSgdSendsTwoFactorsOfAMatrix) {
  for (const std::int64_t r : {1, 4}) {
    const std::string rank = "plan.gradient_rank=" + std::to_string(r);
    EXPECT_EQ(sent_by("power_sgd", {rank}).bytes, (ByKind{{"all_reduce", 4 * ((1000 + 999) * r + 1000)}}));
    EXPECT_EQ(sent_by("power_sgd", {rank}).kept, 4 * 999 * r) << "Q";
    EXPECT_EQ(sent_by("power_sgd, error_feedback", {rank}).kept, 4 * (kM + 999 * r));
  }
  EXPECT_EQ(sent_by("power_sgd", {"plan.gradient_rank=400"}).bytes, (ByKind{{"all_reduce", 4 * kM}}))
      << "whole, as its factors would be four fifths of it";
}

TEST(GradientCompression, PowerSgdIsProductsAndOrthogonalColumns) {
  const plan::Scenario scenario =
      scenario_from(kMillion, {"plan.gradient_compression=[power_sgd]", "plan.gradient_rank=3"});
  const program::Program program = lower::lower(scenario);
  double products = 0, columns = 0;
  for (const program::Body& body : program.roles.front().bodies)
    for (const program::Op& op : body.ops) {
      const program::Work work = program::work_of(program.roles.front(), op);
      if (op.phase != program::Phase::grad_reduce) continue;
      if (std::holds_alternative<program::Gemm>(op.shape)) products += work.flops;
      if (std::holds_alternative<program::LowRank>(op.shape)) columns += work.flops;
    }
  EXPECT_EQ(products, 3 * 2.0 * 1000 * 999 * 3) << "P, Q and their product";
  EXPECT_EQ(columns, (4 * 3 * 2 + 3 * 3) * (1000.0 + 999.0));
}

// What the first steps of a run do is there where it is performed, and in no step that is simulated.
TEST(GradientCompression, FirstStepsOfARunArePerformedAlone) {
  plan::Scenario scenario = scenario_from(
      kMillion, {"plan.gradient_compression=[power_sgd]", "plan.gradient_start_step=10", "plan.gradient_rank=2"});
  const auto whole = [&] {
    std::int64_t bytes = 0;
    const program::Program program = lower::lower(scenario);
    for (const program::Body& body : program.roles.front().bodies)
      for (const program::Op& op : body.ops)
        if (op.ends() && std::holds_alternative<program::Collective>(op.shape)) {
          EXPECT_EQ(op.until_step, 10);
          EXPECT_EQ(op.launches, 0);
          bytes += program::collective_bytes(op);
        }
    return bytes;
  };
  EXPECT_EQ(whole(), 0);
  scenario.purpose = plan::Purpose::perform;
  EXPECT_EQ(whole(), 4 * kM);
  EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "");
}

TEST(GradientCompression, MomentumOfRanksIsKeptInThePlaceOfTheOptimizers) {
  const std::vector<std::string> sgd = {"training.optimizer=sgd", "training.momentum=0.9", "training.clip=0"};
  EXPECT_EQ(sent_by("top_k, momentum_correction", sgd).kept, 8 * kM);
  const auto momenta = [&](const std::string& chain) {
    std::vector<std::string> all = sgd;
    all.push_back("plan.gradient_compression=[" + chain + "]");
    std::int64_t bytes = 0;
    const program::Program program = lower::lower(scenario_from(kMillion, all));
    for (const program::Buffer& b : program.roles.front().buffers)
      if (b.name.starts_with("exp_avg")) bytes += b.bytes();
    return bytes;
  };
  EXPECT_EQ(momenta("top_k, error_feedback"), 4 * kM);
  EXPECT_EQ(momenta("top_k, momentum_correction"), 0);
}

TEST(GradientCompression, BytesOfAllRanksGrowWithThem) {
  const std::vector<std::string> eight = {"cluster.gpus=8", "training.global_batch=8"};
  EXPECT_EQ(sent_by("top_k", eight).bytes.at("all_gather"), 2 * sent_by("top_k").bytes.at("all_gather"));
  EXPECT_EQ(sent_by("int8", {"cluster.gpus=1", "training.global_batch=1", "plan.micro_batch=1"}).bytes, ByKind{});
}

TEST(GradientCompression, KernelsMoveWhatTheyReadAndWrite) {
  const Sent int8 = sent_by("int8");
  const std::int64_t packed = kM + 8 * 489;
  EXPECT_EQ(int8.read, 4 * kM);
  EXPECT_EQ(int8.written, packed);
  EXPECT_EQ(int8.decompress_read, 4 * packed);
  EXPECT_EQ(int8.decompress_written, 4 * kM);
  EXPECT_EQ(sent_by("int8", {"plan.gradient_chunk=0"}).read, 8 * kM) << "once for the least and the greatest";
  const Sent largest = sent_by("top_k, error_feedback");
  EXPECT_EQ(largest.read, 4 * kM + 4 * kM + 4 * 4 * kM) << "gradients, residual, four passes of selection";
  EXPECT_EQ(largest.written, 8 * kM / 100 + 4 * kM);
  EXPECT_EQ(largest.decompress_written, 4 * kM + 4 * 4 * kM / 100) << "zeros, and four ranks' values";
  EXPECT_EQ(sent_by("random_k").read, 4 * kM / 100);
}

TEST(GradientCompression, ErrorFeedbackKeepsAResidualOfFp32) {
  EXPECT_EQ(sent_by("sign").kept, 0);
  EXPECT_EQ(sent_by("sign, error_feedback").kept, 4 * kM);
  EXPECT_EQ(sent_by("sign, error_feedback", {"training.precision=bf16"}).kept, 4 * kM);
}

TEST(GradientCompression, EveryFrameworkTakesIt) {
  for (const char* framework : {"rehearse", "torch-ddp", "megatron-2021", "megatron-core", "mxnet"})
    for (const char* overlap : {"true", "false"}) {
      if (std::string(framework) != "mxnet")
        sent_by("power_sgd, error_feedback", {std::string("framework=") + framework, "training.reduce_dtype=fp32",
                                              std::string("plan.overlap_grad_reduce=") + overlap});
      sent_by("top_k, int4, stochastic, error_feedback",
              {std::string("framework=") + framework, std::string("plan.overlap_grad_reduce=") + overlap,
               "training.precision=bf16"});
    }
}

}  // namespace
}  // namespace rehearse
