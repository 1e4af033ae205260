// Which communicators a program gets: a rank is in each split at most once, groups are whole, and every pair that sends
// has a communicator of its own unless sends start together.
#include "execute/transport/nccl/splits.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using execute::nccl::place_in;
using execute::nccl::Splits;

const std::string kSplitModel =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 16, heads: 4, kv_heads: 2, ffn_hidden: 32, vocab: 256, max_seq_len: 8}\n"
    "training: {global_batch: 8, precision: fp32}\n";

struct Made {
  plan::Scenario scenario;
  program::Program program;
  Splits splits;
  explicit Made(const std::vector<std::string>& plan)
      : scenario(scenario_from(kSplitModel, plan)), program(lower::lower(scenario)), splits(program, scenario.grid()) {}
};

TEST(Splits, PartsOfASplitAreDisjoint) {
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2"},
        {"cluster.gpus=8", "plan.pipeline=4"},
        {"cluster.gpus=3", "plan.pipeline=3", "plan.layers_per_stage=[1,2,1]", "training.global_batch=9"}}) {
    const Made made(plan);
    EXPECT_FALSE(made.splits.all().empty());
    for (const auto& split : made.splits.all()) {
      std::set<int> seen;
      for (const auto& part : split)
        for (const int rank : part) EXPECT_TRUE(seen.insert(rank).second) << "rank " << rank << " is in two parts";
    }
  }
}

TEST(Splits, AGroupIsThePartOfItsRanks) {
  const Made made({"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2"});
  const auto grid = made.scenario.grid();
  int groups = 0;
  for (std::size_t id = 0; id < made.program.groups.size(); ++id) {
    const auto split = made.splits.of_group(static_cast<program::GroupId>(id));
    if (!split) continue;
    ++groups;
    const program::Group& g = made.program.groups[id];
    for (int rank = 0; rank < 8; ++rank)
      if (const auto place = place_in(made.splits.all()[*split], rank)) {
        EXPECT_EQ(*place->part, grid.members(rank, g.axes, g.pipeline_only, g.tensor_block)) << g.name;
        EXPECT_EQ((*place->part)[static_cast<std::size_t>(place->index)], rank);
      }
  }
  EXPECT_GE(groups, 2);
}

TEST(Splits, EveryPairThatSendsHasACommunicatorOfItsOwn) {
  const Made made({"cluster.gpus=4", "plan.pipeline=4"});
  for (int stage = 0; stage < 3; ++stage) {
    const auto forward = made.splits.of_message(stage, stage + 1, 0),
               backward = made.splits.of_message(stage + 1, stage, 1);
    ASSERT_TRUE(forward && backward);
    EXPECT_NE(*forward, *backward);
    EXPECT_EQ(*place_in(made.splits.all()[*forward], stage)->part, (std::vector<int>{stage, stage + 1}));
  }
  EXPECT_FALSE(made.splits.of_message(3, 0, 0)) << "nothing goes round";
  EXPECT_FALSE(made.splits.of_message(0, 1, 1)) << "gradients go back";
}

TEST(Splits, SendsThatStartTogetherShareOne) {
  const Made made({"cluster.gpus=2", "plan.pipeline=2", "framework=megatron-2021"});
  const auto there = made.splits.of_message(0, 1, 0), back = made.splits.of_message(1, 0, 1);
  ASSERT_TRUE(there && back);
  EXPECT_EQ(*there, *back);
}

TEST(Splits, ARankAloneNeedsNone) {
  EXPECT_TRUE(Made({"cluster.gpus=1"}).splits.all().empty());
}

}  // namespace
}  // namespace rehearse
