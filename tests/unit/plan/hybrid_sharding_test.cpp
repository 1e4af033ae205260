// Which ranks shard together, by a number or by the node of a topology.
#include <gtest/gtest.h>

#include "tests/support/lowered.h"

namespace rehearse::plan {
namespace {

// Ranks that shard together, as rank 0 sees them.
std::vector<int> shards_of(const std::vector<std::string>& assignments) {
  const Scenario scenario = scenario_from(
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 16, vocab: 100, max_seq_len: 64}\n"
      "cluster: {topology: dgx-a100, gpus: 64}\n",
      assignments);
  return scenario.grid().members(0, {Axis::context, Axis::data});
}

TEST(HybridSharding, AllByDefault) {
  EXPECT_EQ(shards_of({"plan.zero=3"}).size(), 64U);
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=all", "plan.tensor=2"}).size(), 32U);
}

TEST(HybridSharding, NeighboursByANumber) {
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=4"}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=4", "plan.tensor=2"}), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=16", "plan.tensor=2"}).size(), 16U) << "over two nodes";
}

TEST(HybridSharding, ThoseOfANode) {
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=node"}), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=node", "plan.tensor=2"}), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=node", "cluster.overrides.node.devices=4"}),
            (std::vector<int>{0, 1, 2, 3}));
  // 6 devices a node: of the divisors of 64 only 2 lies within one.
  EXPECT_EQ(shards_of({"plan.zero=3", "plan.zero_group=node", "cluster.overrides.node.devices=6"}).size(), 2U);
  EXPECT_EQ(shards_of({"plan.zero=1", "plan.zero_group=node", "cluster.topology=local", "cluster.gpus=4"}).size(), 4U);
}

// Groups hold whole expert groups, of whose ranks each has a part of all other weights.
TEST(HybridSharding, HoldWholeExpertGroups) {
  const auto groups = [](const std::vector<std::string>& assignments) {
    std::vector<std::string> all = assignments;
    all.insert(all.begin(), {"model={family: moe, layers: 2, hidden: 64, heads: 8, vocab: 100, max_seq_len: 64, "
                             "experts: 8, experts_per_token: 2, expert_ffn_hidden: 64}",
                             "plan.zero=3"});
    const Scenario scenario =
        scenario_from("rehearse: 1\nmodel: gpt-tiny\ncluster: {topology: dgx-a100, gpus: 64}\n", all);
    const RankGrid grid = scenario.grid();
    return std::vector{grid.members(0, {Axis::expert}), grid.members(0, {Axis::context, Axis::expert, Axis::data}),
                       grid.members(0, {Axis::replica})};
  };
  using Ranks = std::vector<int>;
  const Ranks node{0, 1, 2, 3, 4, 5, 6, 7}, apart{0, 8, 16, 24, 32, 40, 48, 56};
  EXPECT_EQ(groups({"plan.expert=4", "plan.zero_group=8"}), (std::vector{Ranks{0, 1, 2, 3}, node, apart}));
  EXPECT_EQ(groups({"plan.expert=8", "plan.zero_group=8"}), (std::vector{node, node, apart}));
  EXPECT_EQ(groups({"plan.expert=2", "plan.zero_group=node"}), (std::vector{Ranks{0, 1}, node, apart}));
}

}  // namespace
}  // namespace rehearse::plan
