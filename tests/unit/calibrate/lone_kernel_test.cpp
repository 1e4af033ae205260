// Kernels on their own, and the grid of them.
#include "calibrate/lone_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "calibrate/kernel_grid.h"

namespace rehearse::calibrate {
namespace {

TEST(LoneKernel, ARepetitionIsTheTimeOfOneCall) {
  int calls = 0;
  const auto samples = repeat([&] { ++calls; }, 0.01);
  EXPECT_GE(samples.size(), 3u);
  EXPECT_LE(samples.size(), 40u);
  EXPECT_GE(calls, static_cast<int>(samples.size()));
  for (const double s : samples) {
    EXPECT_GT(s, 0);
    EXPECT_LT(s, 0.01);
  }
}

TEST(LoneKernel, WhatDoesNotFitIntoTheTimeIsMeasuredOnceOrTwice) {
  int calls = 0;
  const auto samples = repeat(
      [&] {
        ++calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      },
      0.001);
  EXPECT_EQ(calls, 2);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_GE(samples.front(), 0.01);
}

TEST(KernelGrid, ItHasEachShapeOnceAndEveryKindThatProgramsHave) {
  const KernelGrid grid;
  std::set<KernelKey> keys;
  std::set<std::string> kinds;
  for (const GridKernel& k : grid.kernels()) {
    const KernelKey key = key_of(*k.role, *k.op, 1, 1);
    EXPECT_TRUE(keys.insert(key).second) << key.kind << " " << key.shape;
    kinds.insert(key.kind);
  }
  for (const char* kind : {"gemm",
                           "flash_attention_forward",
                           "flash_attention_backward",
                           "attention_scores",
                           "attention_softmax_backward",
                           "layer_norm_forward",
                           "layer_norm_backward_input",
                           "rms_norm_backward_weight",
                           "gelu_backward",
                           "relu_forward",
                           "swiglu_forward",
                           "embedding_backward",
                           "cross_entropy_forward",
                           "cross_entropy_exp_sum",
                           "mse_forward",
                           "mse_backward",
                           "adamw",
                           "sgd",
                           "sum_squares",
                           "conv2d_backward_weight",
                           "max_pool_forward",
                           "bias_grad",
                           "rope",
                           "bias_dropout_add",
                           "router_gate",
                           "router_place",
                           "router_gate_backward",
                           "expert_permute",
                           "expert_unpermute_backward",
                           "grouped_gemm",
                           "latent_heads",
                           "latent_heads_backward",
                           "grouped_gemm_backward_weight",
                           "fill"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  EXPECT_FALSE(kinds.contains("all_reduce"));
  for (const char* shape :
       {"m=64 n=1024 k=256 transpose_b", "m=64 n=64 k=4096", "m=256 n=1024 k=64 transpose_a accumulate"})
    EXPECT_TRUE(keys.contains({"gemm", shape, program::DType::f32, 1, 1})) << shape;
}

TEST(KernelGrid, EveryKindRunsOnItsOwn) {
  const KernelGrid grid;
  std::set<std::string> seen;
  for (const GridKernel& k : grid.kernels()) {
    if (operand_bytes(*k.role, *k.op) > (4 << 20)) continue;
    if (!seen.insert(key_of(*k.role, *k.op, 1, 1).kind).second) continue;
    for (const double s : measure({*k.scenario, *k.role, *k.op}, 2, 1e-4)) EXPECT_GT(s, 0);
  }
  EXPECT_GE(seen.size(), 35u);
}

TEST(KernelGrid, ItStopsWithTheBudget) {
  KernelTimes times;
  measure_grid(KernelGrid(), 2, Budget(0.1, {}), times);
  EXPECT_GT(times.size(), 0u);
  EXPECT_LT(times.size(), KernelGrid().kernels().size());
  for (const auto& k : times.all(cost::Origin::grid)) EXPECT_EQ(k.busy, k.threads);
}

TEST(KernelGrid, AnEmptyTableGetsOneEvenWithNothingLeft) {
  KernelTimes times;
  measure_grid(KernelGrid(), 2, Budget(0, {}), times);
  EXPECT_EQ(times.size(), 1u);
}

TEST(KernelGrid, ThreadsArePowersOfTwoAndAllCores) {
  EXPECT_EQ(thread_counts(1), std::vector<int>{1});
  EXPECT_EQ(thread_counts(2), (std::vector<int>{1, 2}));
  EXPECT_EQ(thread_counts(6), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(thread_counts(8), (std::vector<int>{1, 2, 4, 8}));
}

}  // namespace
}  // namespace rehearse::calibrate
