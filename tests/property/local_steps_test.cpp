// Local steps, simulated on clusters as they are: ranks that are alike are one, with the same bytes in result.json;
// what a step is said to be is the mean of the steps that a round is said to be made of.
#include <gtest/gtest.h>

#include "sim/run/run.h"
#include "tests/support/lowered.h"
#include "tests/support/without_engine.h"

namespace rehearse::local_steps_test {
namespace {

const std::string kSmall =
    "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 256, heads: 4, vocab: 1000, max_seq_len: 128}\n"
    "plan: {local_steps: 6}\ntraining: {global_batch: 64, precision: bf16}\n"
    "cluster: {topology: ethernet-a100, gpus: 32}\n";

result::Result simulated_with(std::vector<std::string> assignments, bool fold = true) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.fold = fold;
  return run::simulate_scenario(scenario_from(kSmall, std::move(assignments)), options);
}

// Stages whose hosts wait for an exchange, with more buckets to be averaged at the end of a round than ops before it:
// where the round goes on, nothing of its end is behind that wait.
TEST(LocalStepsSimulated, HostsWaitForNothingOfTheEndOfARoundInOtherSteps) {
  const result::Result r =
      simulated_with({"cluster.topology=dgx-a100", "cluster.gpus=8", "framework=megatron-core", "plan.pipeline=4",
                      "plan.local_steps=3", "plan.bucket=1MB", "plan.outer_optimizer=nesterov"});
  EXPECT_GT(r.step_time_ps, 0);
}

TEST(LocalStepsSimulated, FoldedOrNotAreTheSameBytes) {
  for (const std::vector<std::string>& plan : {std::vector<std::string>{},
                                               {"plan.local_group=node", "plan.outer_optimizer=nesterov"},
                                               {"plan.tensor=2", "plan.pipeline=2", "plan.outer_optimizer=nesterov"},
                                               {"framework=torch-ddp", "plan.local_group=node"}}) {
    const result::Result folded = simulated_with(plan), every = simulated_with(plan, false);
    EXPECT_EQ(without_engine(folded), without_engine(every));
    EXPECT_LT(folded.ranks_simulated, every.ranks_simulated);
    EXPECT_EQ(folded.ops, every.ops);
  }
}

TEST(LocalStepsSimulated, AStepIsTheMeanOfTheRound) {
  for (const char* noise : {"0", "0.05"}) {
    const result::Result r = simulated_with({std::string("noise.kernels=") + noise, "plan.outer_optimizer=nesterov"});
    const result::LocalSteps& l = r.local_steps;
    ASSERT_TRUE(l.known);
    EXPECT_EQ(l.steps, 6);
    EXPECT_EQ(l.workers, 32);
    EXPECT_EQ(r.step_time_ps, l.round_ps / 6);
    EXPECT_NEAR(static_cast<double>(5 * l.inner_ps + l.outer_ps), static_cast<double>(l.round_ps), 6);
    EXPECT_GT(l.outer_ps, l.inner_ps);
    EXPECT_EQ(r.steps, 7);
  }
}

// Two fp32 numbers a parameter more, and while the outer step runs a third, where forward's and backward's are gone.
TEST(LocalStepsSimulated, TheOuterCopyAndMomentumAreMemory) {
  const result::Result mean = simulated_with({}), moved = simulated_with({"plan.outer_optimizer=nesterov"});
  const result::Result plain = simulated_with({"plan.outer_optimizer=nesterov", "plan.outer_momentum=0"});
  const std::int64_t parameters = mean.stages.front().parameters / 2;
  EXPECT_EQ(moved.stages.front().optimizer - mean.stages.front().optimizer, 8 * parameters);
  EXPECT_EQ(plain.stages.front().optimizer - mean.stages.front().optimizer, 4 * parameters);
}

}  // namespace
}  // namespace rehearse::local_steps_test
