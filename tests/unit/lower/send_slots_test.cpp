// Which plans could not go on if sends waited for their receivers.
#include "sim/program/link/send_slots.h"

#include <gtest/gtest.h>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

const std::string kSmallLlama =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 16, heads: 4, kv_heads: 2, ffn_hidden: 32, vocab: 256, max_seq_len: 8}\n"
    "training: {global_batch: 8, precision: fp32}\n";

int slots(const std::vector<std::string>& plan) {
  const plan::Scenario scenario = scenario_from(kSmallLlama, plan);
  const program::Program program = lower::lower(scenario);
  const plan::RankGrid grid = scenario.grid();
  const program::GridView view = grid_view(grid);
  std::vector<program::Timeline> timelines;
  for (const program::Role& role : program.roles) timelines.push_back(program::make_timeline(role, view.size));
  return program::send_slots(program, timelines, view);
}

TEST(SendSlots, NoneWhereRanksMeetInOneOrder) {
  EXPECT_EQ(slots({"cluster.gpus=1"}), 0);
  EXPECT_EQ(slots({"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2", "plan.zero=1"}), 0);
  EXPECT_EQ(slots({"cluster.gpus=4", "plan.pipeline=4", "plan.schedule=gpipe"}), 0);
}

// tests/gpu/ranks/trains_test.cpp trains it so; without slots its ranks wait for one another until the deadline.
TEST(SendSlots, AnInterleavedScheduleNeedsSome) {
  EXPECT_GT(slots({"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2"}), 0);
}

}  // namespace
}  // namespace rehearse
