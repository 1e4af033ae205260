// What errors of kernels add to an interval learned from runs (sim/run/step_interval.h).
#include "sim/run/step_interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace rehearse::run {
namespace {

constexpr StepInterval kLearned = {0.9, 1.3, 0.8, 1.4};

TEST(StepInterval, HoldsErrorsOfKernelsThatTheRunsHad) {
  for (const double kernels : {1.0, 1.2, 1.4}) {
    const StepInterval step = with_kernels(kLearned, 0.8, kernels);
    EXPECT_DOUBLE_EQ(step.low, 0.9);
    EXPECT_DOUBLE_EQ(step.high, 1.3);
  }
}

TEST(StepInterval, GrowsByWhatKernelsAreKnownWorse) {
  // Learned from kernels that were known exactly: squares of logarithms are added.
  const StepInterval exact = with_kernels({std::exp(-0.3), std::exp(0.3), 1, 1}, std::exp(-0.4), std::exp(0.4));
  EXPECT_NEAR(std::log(exact.low), -0.5, 1e-12);
  EXPECT_NEAR(std::log(exact.high), 0.5, 1e-12);
  // Of 0.5 those runs had 0.3: sqrt(0.3^2 + 0.5^2 - 0.3^2).
  const StepInterval partly =
      with_kernels({std::exp(-0.3), std::exp(0.3), std::exp(-0.3), std::exp(0.3)}, std::exp(-0.2), std::exp(0.5));
  EXPECT_NEAR(std::log(partly.low), -0.3, 1e-12);
  EXPECT_NEAR(std::log(partly.high), 0.5, 1e-12);
}

TEST(StepInterval, IsTheKernelsAloneWhereNoRunSaysAnything) {
  const StepInterval step = with_kernels({}, 0.8, 1.5);
  EXPECT_NEAR(step.low, 0.8, 1e-12);
  EXPECT_NEAR(step.high, 1.5, 1e-12);
  const StepInterval measured = with_kernels({}, 1, 1);
  EXPECT_EQ(measured.low, 1);
  EXPECT_EQ(measured.high, 1);
}

// Of the table that ships: a framework without runs is furthest off, and a source's own rows are scored with the
// others'.
TEST(StepInterval, OfAFrameworkWithoutRunsIsTheWidest) {
  const StepInterval others = step_interval("no-such-framework", "", REHEARSE_SOURCE_DIR);
  for (const char* framework : {"llm-foundry", "megatron-2021", "nemo"}) {
    const StepInterval known = step_interval(framework, "", REHEARSE_SOURCE_DIR);
    EXPECT_LT(known.low, 1) << framework;
    EXPECT_GT(known.high, 1) << framework;
    EXPECT_LT(known.kernels_low, 1) << framework;
    EXPECT_GT(known.kernels_high, 1) << framework;
    EXPECT_LT(others.low, known.low) << framework;
    EXPECT_GT(others.high, known.high) << framework;
  }
  const StepInterval left_out = step_interval("nanotron", "nanotron", REHEARSE_SOURCE_DIR);
  EXPECT_LT(left_out.high, step_interval("nanotron", "", REHEARSE_SOURCE_DIR).high)
      << "nanotron's own rows are further off than the others'";
}

}  // namespace
}  // namespace rehearse::run
