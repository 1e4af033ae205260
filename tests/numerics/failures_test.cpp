// A run that cannot go on ends, soon, and says which rank failed where and who waited for it.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "execute/performer.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

const std::string kScenario =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [8, 8, 8, 4]}\n"
    "cluster: {gpus: 4}\n"
    "plan: {pipeline: 2, micro_batch: 1}\n"
    "training: {global_batch: 8, precision: fp32}\n";

std::string failure(const execute::Options& options) {
  const plan::Scenario scenario = scenario_from(kScenario);
  try {
    execute::perform(scenario, lower::lower(scenario), options);
  } catch (const execute::RankFailure& error) {
    return error.what();
  }
  return "";
}

TEST(Failures, ARankThatThrowsEndsTheRunWithItsNameAndPlace) {
  execute::Options options;
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank != 2 || step != 1 || op.name != "linear2.backward_weight") return;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until the others wait for it
    throw std::runtime_error("out of ideas");
  };
  const std::string text = failure(options);
  EXPECT_NE(text.find("rank 2 (stage1) in 'linear2.backward_weight' (slot "), std::string::npos) << text;
  EXPECT_NE(text.find("backward"), std::string::npos) << text;
  EXPECT_NE(text.find("out of ideas"), std::string::npos) << text;
  EXPECT_NE(text.find("waited for rank 2"), std::string::npos) << text;
}

TEST(Failures, ARankThatStopsAnsweringIsNamedAfterTheTimeout) {
  execute::Options options;
  options.timeout = std::chrono::milliseconds(1000);
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 3 && step == 0 && op.name == "loss.forward") std::this_thread::sleep_for(std::chrono::seconds(4));
  };
  const std::string text = failure(options);
  // Rank 0 may be the first whose time is over: it waits for rank 1, which waits for rank 3.
  EXPECT_NE(text.find("waited 1 s for rank"), std::string::npos) << text;
  EXPECT_NE(text.find(" for rank 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 3 (stage1) was in 'loss.forward'"), std::string::npos) << text;
}

// A stream that waits for another of its own rank has no deadline: a kernel may take longer than the timeout.
TEST(Failures, AKernelMayTakeLongerThanTheTimeout) {
  const plan::Scenario scenario = scenario_from(kScenario, {"cluster.gpus=1", "plan.pipeline=1"});
  execute::Options options;
  options.steps = 2;
  options.timeout = std::chrono::milliseconds(100);
  options.before_op = [](int, std::int64_t step, const program::Op& op) {
    if (step == 1 && op.name == "loss.forward") std::this_thread::sleep_for(std::chrono::milliseconds(400));
  };
  EXPECT_EQ(execute::perform(scenario, lower::lower(scenario), options).result.loss.size(), 2u);
}

TEST(Failures, TheCallersExceptionEndsTheRunAndIsThrownOn) {
  const plan::Scenario scenario = scenario_from(kScenario);
  execute::Options options;
  options.steps = 1000;
  int steps = 0;
  options.on_step = [&](int, const execute::StepLoss&) {
    if (++steps == 3) throw std::domain_error("enough");
  };
  EXPECT_THROW(execute::perform(scenario, lower::lower(scenario), options), std::domain_error);
  EXPECT_EQ(steps, 3);
}

TEST(Failures, WhatIsNotPerformedIsRefusedWithTheKey) {
  for (const auto& [assignment, key] : {std::pair<std::string, std::string>{"cluster.gpus=128", "cluster.gpus"}}) {
    const plan::Scenario scenario = scenario_from(kScenario, {assignment, "training.global_batch=128"});
    try {
      execute::perform(scenario, lower::lower(scenario), {});
      ADD_FAILURE() << assignment << " was performed";
    } catch (const InputError& error) {
      EXPECT_EQ(error.diagnostics().front().path, key);
    }
  }
}

}  // namespace
}  // namespace rehearse
