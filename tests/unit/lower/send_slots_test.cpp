// Which plans could not go on if sends waited for their receivers.
#include "sim/program/link/send_slots.h"

#include <gtest/gtest.h>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

const std::string kSmallLlama =
    "rehearse: 1\n"
    "model: {family: llama, layers: 8, hidden: 16, heads: 4, kv_heads: 2, ffn_hidden: 32, vocab: 256, max_seq_len: 8}\n"
    "training: {global_batch: 8, precision: fp32}\n";

int slots(const std::vector<std::string>& plan) {
  const plan::Scenario scenario = scenario_from(kSmallLlama, plan);
  const program::Program program = lower::lower(scenario);
  const plan::RankGrid grid = scenario.grid();
  const program::GridView view = grid_view(program, grid);
  const program::Arenas arenas = program::lay_out_arenas(program, view, true);
  EXPECT_TRUE(arenas.drains);
  EXPECT_TRUE(program::lay_out_arenas(program, view, false).drains);
  return arenas.send_slots;
}

TEST(SendSlots, NoneWhereRanksMeetInOneOrder) {
  EXPECT_EQ(slots({"cluster.gpus=1"}), 0);
  EXPECT_EQ(slots({"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2", "plan.zero=1"}), 0);
  EXPECT_EQ(slots({"cluster.gpus=4", "plan.pipeline=4", "plan.schedule=gpipe"}), 0);
}

// Each stage sends in an order of its own, and what is sent lies where nothing else is written meanwhile.
TEST(SendSlots, NoneForAnInterleavedSchedule) {
  for (const char* chunks : {"plan.chunks=2", "plan.chunks=4"})
    EXPECT_EQ(slots({"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=interleaved", chunks}), 0);
  EXPECT_EQ(slots({"cluster.gpus=4", "plan.pipeline=4", "plan.schedule=zero_bubble"}), 0);
}

}  // namespace
}  // namespace rehearse
