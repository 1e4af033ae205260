// `calibrate --device cuda` from end to end on the emulated device, for a model so small that its kernels take
// milliseconds there. What the times are means nothing; that every kernel is called, timed and written down, and read
// back as exact, does. Products need cuBLASLt, which has no device here: they are told as not measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "calibrate/cuda/cuda_bench.h"
#include "calibrate/gpu/gpu_calibrate.h"
#include "calibrate/gpu/kernels_to_time.h"
#include "sim/lower/lower.h"
#include "tests/gpu/emulator/blas.h"
#include "tests/support/temporary.h"

namespace rehearse::calibrate::gpu {
namespace {

namespace fs = std::filesystem;

plan::Scenario tiny(model::Family family) {
  plan::Scenario s;
  s.name = "tiny";
  model::Model& m = s.model;
  m.name = "tiny";
  m.family = family;
  m.layers = 1;
  m.hidden = 64;
  m.head_dim = 32;
  m.heads = m.kv_heads = 2;
  m.ffn_hidden = 64;
  m.vocab = 96;
  m.max_seq_len = 32;
  if (family == model::Family::llama) {
    m.activation = model::ActivationKind::swiglu;
    m.norm = model::NormKind::rmsnorm;
    m.position = model::Position::rope;
    m.tied_embeddings = m.bias = false;
  }
  s.plan.layers_per_stage = {1};
  s.plan.micro_batch = 1;
  s.training.global_batch = 2;
  s.training.seq_len = 32;
  s.training.precision = plan::Precision::bf16;
  return s;
}

TEST(EmulatedCalibration, EveryKernelIsTimedAndReadBackAsExact) {
  const auto bench = make_cuda_bench(0);
  GpuRequest request;
  request.scenarios = {tiny(model::Family::gpt), tiny(model::Family::llama)};
  request.budget_s = 1000;  // it is done long before, on a busy machine too
  request.sustained_s = 0;
  request.grid = false;
  request.largest_copy = 2 << 20;
  request.protocol = {
      .warm_up_s = 0, .warm_up_runs = 1, .graph_s = 0, .most_launches = 2, .kernel_s = 0, .repetitions = 1};
  const GpuOutcome outcome = calibrate_gpu(*bench, request);
  const GpuCalibration& c = outcome.calibration;
  EXPECT_GT(c.measured.launch.graph, 0);
  EXPECT_EQ(c.measured.copies.size(), 9U);
  const std::string file = test::temporary_path("emulated.yaml");
  std::ofstream(file) << to_yaml(c);
  const auto costs = cost::load_costs({file});
  const KernelsToTime list(request.scenarios, false);
  int kernels = 0;
  for (const Kernel& k : list.kernels()) {
    if (std::holds_alternative<program::Gemm>(k.op->shape)) continue;
    ++kernels;
    EXPECT_EQ(costs->kernel(*k.role, *k.op, {}).coverage, cost::Coverage::exact) << key_of(*k.role, *k.op);
  }
  EXPECT_GE(kernels, 20);
  fs::remove(file);
}

// With a cuBLASLt of plain loops: products of programs, with a bias too.
TEST(EmulatedCalibration, ProductsAreTimedWithWhatTheLibraryTells) {
  const auto bench = make_cuda_bench(0, &emulator::blas_api());
  const std::vector<plan::Scenario> scenarios = {tiny(model::Family::gpt)};
  const KernelsToTime list(scenarios, false);
  int products = 0, with_bias = 0;
  for (const Kernel& k : list.kernels()) {
    const auto* g = std::get_if<program::Gemm>(&k.op->shape);
    if (g == nullptr) continue;
    const auto run = bench->kernel(k);
    ASSERT_NE(run, nullptr) << key_of(*k.role, *k.op) << ": " << bench->problem();
    const Choice choice = run->choice();
    EXPECT_GT(choice.first, 0);
    EXPECT_GT(choice.best, 0);
    EXPECT_EQ(choice.tile.m, 256) << "the library's 128x256 is of C transposed";
    EXPECT_EQ(choice.algorithm, "id 60 tile 256x128 stages 15 split-k 2 cluster 3 reduction 2");
    ++products;
    with_bias += g->bias ? 1 : 0;
  }
  EXPECT_GE(products, 6);
  EXPECT_GE(with_bias, 1);
}

// Bursts, and the products of a walk, go by the algorithm that execute --products measured takes.
TEST(EmulatedCalibration, MeasuredProductsAreTimedByTheirFastestAlgorithm) {
  emulator::blas_log().first_sleeps_ms = 5;
  const plan::Scenario scenario = tiny(model::Family::gpt);
  const KernelsToTime list({scenario}, false);
  const auto product = std::find_if(list.kernels().begin(), list.kernels().end(),
                                    [](const Kernel& k) { return std::holds_alternative<program::Gemm>(k.op->shape); });
  ASSERT_NE(product, list.kernels().end());
  for (const bool measured : {false, true}) {
    const auto bench = make_cuda_bench(0, &emulator::blas_api(), measured);
    const auto run = bench->kernel(*product);
    ASSERT_NE(run, nullptr) << bench->problem();
    const Choice choice = run->choice();
    EXPECT_EQ(choice.algorithm.substr(0, 5), measured ? "id 62" : "id 60");
    EXPECT_GT(choice.first, choice.best);
    emulator::blas_log().algorithms.clear();
    run->launch(2);
    EXPECT_EQ(emulator::blas_log().algorithms, std::vector<std::uint64_t>(2, measured ? 2 : 0));
  }
  const auto bench = make_cuda_bench(0, &emulator::blas_api(), true);
  const program::Program program = lower::lower(scenario);
  const Walk walk = bench->walk(scenario, program, 0, 2, [] {});
  EXPECT_GE(walk.products.size(), 6U) << bench->problem();
  const auto others = std::count_if(walk.products.begin(), walk.products.end(),
                                    [](const result::ProductUse& p) { return p.algorithm.starts_with("id 62"); });
  EXPECT_GE(others, 6) << "of " << walk.products.size();
  emulator::blas_log().first_sleeps_ms = 0;
}

// Those that are performed: with the epilogue where the library has it, and without, as performing does, where not.
TEST(EmulatedCalibration, EpiloguesAreTimedAsTheyArePerformed) {
  std::vector<plan::Scenario> scenarios = {tiny(model::Family::gpt)};
  scenarios.front().plan.fused_epilogues = plan::FusedEpilogues::all;
  const KernelsToTime list(scenarios, false);
  for (const bool refused : {false, true}) {
    const auto bench = make_cuda_bench(0, &emulator::blas_api());
    emulator::blas_log().no_epilogues = refused;
    std::map<program::Epilogue, int> met;
    for (const Kernel& k : list.kernels()) {
      const auto* g = std::get_if<program::Gemm>(&k.op->shape);
      if (g == nullptr || g->epilogue == program::Epilogue::none) continue;
      ++met[g->epilogue];
      emulator::blas_log().epilogues.clear();
      const auto run = bench->kernel(k);
      ASSERT_NE(run, nullptr) << key_of(*k.role, *k.op) << ": " << bench->problem();
      EXPECT_GT(run->launch(1), 0);
      EXPECT_GT(run->choice().first, 0);
      for (const std::uint32_t epilogue : emulator::blas_log().epilogues)
        EXPECT_EQ(epilogue == CUBLASLT_EPILOGUE_DEFAULT || epilogue == CUBLASLT_EPILOGUE_BIAS, refused)
            << key_of(*k.role, *k.op);
    }
    emulator::blas_log().no_epilogues = false;
    EXPECT_EQ(met.size(), 3U);
  }
}

// A rank's steps through the CUDA side of `execute`: every kernel of the program has as many spans as there were
// steps that count, the later half of six, and the device is as usable as before.
TEST(EmulatedCalibration, AWalkTimesEveryKernelOfAStep) {
  const auto bench = make_cuda_bench(0, &emulator::blas_api());
  const plan::Scenario scenario = tiny(model::Family::gpt);
  const program::Program program = lower::lower(scenario);
  int polled = 0;
  const Walk walk = bench->walk(scenario, program, 0, 6, [&] { ++polled; });
  ASSERT_FALSE(walk.ops.empty()) << bench->problem();
  EXPECT_GT(polled, 0);
  std::set<std::string> walked;
  for (const WalkedOp& w : walk.ops) {
    EXPECT_EQ(w.seconds.size() % 3, 0U) << w.op->name;
    for (const double s : w.seconds) EXPECT_GE(s, 0);
    walked.insert(key_of(*w.role, *w.op));
  }
  const std::vector<plan::Scenario> scenarios = {scenario};
  const KernelsToTime list(scenarios, false);
  for (const Kernel& k : list.kernels()) EXPECT_TRUE(walked.contains(key_of(*k.role, *k.op)));
  EXPECT_NE(bench->kernel(list.kernels().front()), nullptr) << bench->problem();
}

}  // namespace
}  // namespace rehearse::calibrate::gpu
