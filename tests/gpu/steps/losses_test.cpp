// A rank over the CUDA runtime and our own CUDA kernels trains as one on the CPU does: on a GPU for 20 steps
// (test_gpu), and for 5 with runtime, cuBLASLt and kernels emulated (tests/gpu/emulator). What no emulator shows:
// streams that run side by side, which tests/gpu/ranks has.
//
// Losses may differ by kFp32 in fp32, whose sums are made in another order, and by kBf16 in bf16, where a sum that lies
// near the middle of two numbers of 8 bits of mantissa is rounded to either (2^-8 is 4e-3).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "execute/performer.h"
#include "execute/processes/local_world.h"
#include "execute/rank/gpu/cuda_gpu.h"
#include "execute/rank/gpu/gpu_maker.h"
#include "kernels/cuda/cuda.h"
#include "sim/lower/lower.h"
#include "tests/support/temporary.h"
#ifdef REHEARSE_EMULATED
#include "tests/gpu/emulator/blas.h"
#include "tests/gpu/emulator/sdpa.h"
#endif

namespace rehearse {
namespace {

#ifdef REHEARSE_EMULATED
constexpr int kSteps = 5;
const kernels::cuda::BlasApi* products() {
  return &emulator::blas_api();
}
const kernels::cuda::SdpaApi* attention() {
  return &emulator::sdpa_api();
}
#else
constexpr int kSteps = 20;
const kernels::cuda::BlasApi* products() {
  return nullptr;
}
const kernels::cuda::SdpaApi* attention() {
  return nullptr;
}
#endif
constexpr double kFp32 = 1e-4, kBf16 = 1e-2;

// Scenarios lie next to a packed program, or in the source.
plan::Scenario scenario_of(const std::string& text) {
  const char* root = std::getenv("REHEARSE_ROOT");
  const std::string path = test::temporary_path("scenario.yaml");
  std::ofstream(path) << text;
  plan::Scenario scenario =
      plan::read_scenario(path, {"framework=rehearse"}, root != nullptr ? root : REHEARSE_SOURCE_DIR);
  std::filesystem::remove(path);
  return scenario;
}

execute::Outcome on_gpu(const plan::Scenario& scenario, execute::Options options, execute::Graphs graphs,
                        bool measure_products = false, bool library_attention = false) {
  execute::GpuMaker::Parts parts;
  parts.gpu = [](int) { return execute::make_cuda_gpu(0, products(), attention()); };
  parts.options.library_attention = library_attention;
  parts.options.graphs = graphs;
  parts.options.measure_products = measure_products;
  execute::GpuMaker maker(std::move(parts));
  options.maker = &maker;
  const auto world = execute::make_local_world(1, options.timeout);
  return *execute::perform(scenario, lower::lower(scenario), options, *world);
}

void expect_trains_as_on_the_cpu(const std::string& text, double tolerance, execute::Graphs graphs,
                                 bool measure_products = false, result::GpuRun* run = nullptr,
                                 bool library_attention = false) {
  if (const std::string reason = kernels::cuda::why_no_device(); !reason.empty())
    GTEST_SKIP() << "no CUDA device: " << reason;
  const plan::Scenario scenario = scenario_of(text);
  execute::Options options;
  options.steps = kSteps;
  const std::vector<double> cpu = execute::perform(scenario, lower::lower(scenario), options).result.loss;
  const execute::Outcome gpu = on_gpu(scenario, options, graphs, measure_products, library_attention);
  if (run != nullptr) *run = gpu.result.gpu;
  EXPECT_EQ(gpu.device.products > 0, measure_products);
  ASSERT_EQ(gpu.result.loss.size(), cpu.size());
  for (std::size_t step = 0; step < cpu.size(); ++step)
    EXPECT_NEAR(gpu.result.loss[step] / cpu[step], 1, tolerance) << "step " << step;
  EXPECT_EQ(gpu.device.graph_steps, graphs == execute::Graphs::off ? 0 : kSteps - 3);
}

const std::string kMlp =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [16, 16, 8]}\n"
    "cluster: {gpus: 1}\n"
    "plan: {micro_batch: 4}\n"
    "training: {global_batch: 8, precision: fp32, lr: 3e-3, clip: 0.5}\n";

std::string gpt(const std::string& precision, const std::string& epilogues = "none") {
  return "rehearse: 1\n"
         "model: {family: gpt, layers: 1, hidden: 32, heads: 2, vocab: 256, max_seq_len: 8, dropout: 0.1}\n"
         "cluster: {gpus: 1}\n"
         "plan: {micro_batch: 1, fused_epilogues: " +
         epilogues +
         "}\n"
         "training: {global_batch: 2, lr: 1e-3, seed: 3, precision: " +
         precision + "}\n";
}

TEST(GpuLosses, TrainsAnMlp) {
  expect_trains_as_on_the_cpu(kMlp, kFp32, execute::Graphs::off);
}
TEST(GpuLosses, TrainsAnMlpFromGraphs) {
  expect_trains_as_on_the_cpu(kMlp, kFp32, execute::Graphs::automatic);
}
TEST(GpuLosses, TrainsAGpt) {
  expect_trains_as_on_the_cpu(gpt("fp32"), kFp32, execute::Graphs::off);
}
TEST(GpuLosses, TrainsAGptInBf16FromGraphs) {
  expect_trains_as_on_the_cpu(gpt("bf16"), kBf16, execute::Graphs::automatic);
}

// Experts of one rank, with a capacity and with as many rows as come, whose loads are read on the device.
std::string moe(const std::string& capacity, const std::string& precision, const std::string& optimizer = "adamw") {
  return "rehearse: 1\n"
         "model: {family: moe, layers: 1, hidden: 32, heads: 2, vocab: 256, max_seq_len: 8, experts: 4, "
         "experts_per_token: 2, expert_ffn_hidden: 24, aux_loss: 0.05, capacity_factor: " +
         capacity +
         "}\n"
         "cluster: {gpus: 1}\n"
         "plan: {micro_batch: 1}\n"
         "training: {global_batch: 2, lr: 1e-3, seed: 3, precision: " +
         precision + ", optimizer: " + optimizer + "}\n";
}
TEST(GpuLosses, TrainsExperts) {
  expect_trains_as_on_the_cpu(moe("0", "fp32"), kFp32, execute::Graphs::off);
}
TEST(GpuLosses, TrainsExpertsWithACapacityInBf16FromGraphs) {
  expect_trains_as_on_the_cpu(moe("1.25", "bf16"), kBf16, execute::Graphs::automatic);
}
TEST(GpuLosses, TrainsExpertsByAdafactor) {
  expect_trains_as_on_the_cpu(moe("1.25", "fp32", "adafactor"), kFp32, execute::Graphs::off);
}

// GELU, its slope and the gradients of biases out of products; and where the library has no such products.
TEST(GpuLosses, TrainsAGptWithFusedEpilogues) {
  expect_trains_as_on_the_cpu(gpt("fp32", "all"), kFp32, execute::Graphs::off);
}
TEST(GpuLosses, TrainsAGptWithFusedEpiloguesInBf16FromGraphs) {
  expect_trains_as_on_the_cpu(gpt("bf16", "all"), kBf16, execute::Graphs::automatic);
}
// Each product by the fastest algorithm of those that the library offers for it.
TEST(GpuLosses, TrainsAGptByMeasuredAlgorithms) {
  expect_trains_as_on_the_cpu(gpt("fp32", "all"), kFp32, execute::Graphs::off, true);
}
TEST(GpuLosses, TrainsAGptByMeasuredAlgorithmsInBf16FromGraphs) {
  expect_trains_as_on_the_cpu(gpt("bf16"), kBf16, execute::Graphs::automatic, true);
}

std::string without_dropout(std::string scenario) {
  const std::string dropout = ", dropout: 0.1";
  return scenario.erase(scenario.find(dropout), dropout.size());
}
// By whom each pass of attention was done, in the order of forward and backward.
std::vector<std::string> attention_of(const std::string& scenario, execute::Graphs graphs) {
  result::GpuRun run;
  expect_trains_as_on_the_cpu(scenario, kBf16, graphs, false, &run, true);
  std::vector<std::string> by;
  for (const result::ProductUse& p : run.products)
    if (p.form.starts_with("attention ")) by.push_back(p.form.substr(10) + ": " + p.algorithm);
  return by;
}
// On a GPU it is cuDNN's, or the run says why not.
TEST(GpuLosses, TrainsAGptWithTheLibrarysAttention) {
  for (const execute::Graphs graphs : {execute::Graphs::off, execute::Graphs::automatic})
    for (const std::string& by : attention_of(without_dropout(gpt("bf16")), graphs)) std::puts(by.c_str());
}
#ifdef REHEARSE_EMULATED
TEST(GpuLosses, TheLibrarysAttentionPerformsOnceItComputesTheSame) {
  const std::string scenario = without_dropout(gpt("bf16"));
  int& executed = emulator::sdpa_log().executed;
  executed = 0;
  EXPECT_EQ(attention_of(scenario, execute::Graphs::off),
            (std::vector<std::string>{"backward bf16: cuDNN 9.19.0 engine 6, 1792 bytes",
                                      "forward bf16: cuDNN 9.19.0 engine 6, 512 bytes"}));
  EXPECT_EQ(executed, 2 * 2 * kSteps);  // of a step two micro-batches, of which one layer, forward and backward
  executed = 0;
  emulator::sdpa_log().wrong_by = 0.25F;
  const std::vector<std::string> wrong = attention_of(scenario, execute::Graphs::off);
  emulator::sdpa_log().wrong_by = 0;
  ASSERT_EQ(wrong.size(), 2U);
  EXPECT_NE(wrong[1].find("own kernels: cuDNN's output is "), std::string::npos) << wrong[1];
  EXPECT_NE(wrong[0].find("own kernels: cuDNN's gradient is "), std::string::npos) << wrong[0];
  EXPECT_EQ(executed, 2) << "once each, to be compared";
  emulator::sdpa_log().no_plan = true;
  const std::vector<std::string> none = attention_of(scenario, execute::Graphs::off);
  emulator::sdpa_log().no_plan = false;
  ASSERT_EQ(none.size(), 2U);
  EXPECT_NE(none[0].find("own kernels: cuDNN has no plan for this attention"), std::string::npos) << none[0];
  EXPECT_EQ(attention_of(gpt("bf16"), execute::Graphs::off), std::vector<std::string>()) << "dropout is ours";
}

// The first takes longer here; what accumulates has enough calls in two steps to find it out.
TEST(GpuLosses, TheResultNamesTheAlgorithmsThatWereFastest) {
  emulator::blas_log().first_sleeps_ms = 5;
  result::GpuRun run;
  for (const bool measured : {false, true}) {
    expect_trains_as_on_the_cpu(kMlp, kFp32, execute::Graphs::automatic, measured, &run);
    EXPECT_GE(run.products.size(), 4U);
    for (const result::ProductUse& p : run.products)
      EXPECT_EQ(p.algorithm.substr(0, 5), measured ? "id 62" : "id 60") << p.form << ' ' << p.m << ' ' << p.n;
  }
  emulator::blas_log().first_sleeps_ms = 0;
}
std::set<std::uint32_t> epilogues_of(bool library_has_them) {
  emulator::blas_log().epilogues.clear();
  emulator::blas_log().no_epilogues = !library_has_them;
  expect_trains_as_on_the_cpu(gpt("bf16", "all"), kBf16, execute::Graphs::off);
  emulator::blas_log().no_epilogues = false;
  return {emulator::blas_log().epilogues.begin(), emulator::blas_log().epilogues.end()};
}
TEST(GpuLosses, EpiloguesThatTheLibraryLacksAreKernelsOfOurOwn) {
  EXPECT_EQ(epilogues_of(true),
            (std::set<std::uint32_t>{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                     CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB}));
  EXPECT_EQ(epilogues_of(false), (std::set<std::uint32_t>{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS}));
}
#endif

}  // namespace
}  // namespace rehearse
