// cluster.nodes and plan.layers_per_stage: by_time as they are read.
#include <algorithm>

#include "sim/plan/keys.h"
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Problems = std::vector<std::string>;
const std::string kTwoKinds = "nodes: [{topology: dgx-h100, count: 4}, {topology: dgx-a100, count: 2}]";

std::string nodes_scenario(const std::string& rest) {
  return "rehearse: 1\n" + kSmallModel + rest;
}

TEST(ClusterNodes, GpusAreTheirDevicesAndTheFabricTheFirstEntrys) {
  const Scenario s = read(nodes_scenario("cluster: {" + kTwoKinds + "}\ntraining: {global_batch: 48}\n"));
  EXPECT_EQ(s.cluster.gpus, 48);
  EXPECT_EQ(s.cluster.topology, "dgx-h100");
  ASSERT_EQ(s.cluster.nodes.size(), 2U);
  EXPECT_EQ(s.cluster.nodes[1].topology, "dgx-a100");
  EXPECT_EQ(s.cluster.nodes[1].count, 2);
  EXPECT_EQ(read(nodes_scenario("cluster: {topology: dgx-a100, " + kTwoKinds + "}\ntraining: {global_batch: 48}\n"))
                .cluster.topology,
            "dgx-a100");
}

TEST(ClusterNodes, GpusThatDoNotAddUpAreRefusedWithTheSum) {
  const Problems found =
      problems(nodes_scenario("cluster: {gpus: 32, " + kTwoKinds + "}\ntraining: {global_batch: 32}\n"));
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(found);
  EXPECT_EQ(found[0],
            "3:17 cluster.gpus: gpus = 32, but the nodes have 4 nodes of 8 + 2 nodes of 8 = 48 devices "
            "(leave gpus out; with placement or jobs they may be fewer)");
  EXPECT_TRUE(problems(nodes_scenario("cluster: {gpus: 32, placement: ['node[2-5]'], " + kTwoKinds +
                                      "}\ntraining: {global_batch: 32}\n"))
                  .empty())
      << "with a placement there may be fewer";
  EXPECT_EQ(problems(nodes_scenario("cluster: {gpus: 64, placement: ['node[2-5]'], " + kTwoKinds +
                                    "}\ntraining: {global_batch: 64}\n"))
                .size(),
            1U);
}

TEST(ClusterNodes, WhatIsNoListOfMappingsIsRefused) {
  EXPECT_EQ(problems(nodes_scenario("cluster: {gpus: 8, nodes: 3}\n")).size(), 1U);
  EXPECT_EQ(problems(nodes_scenario("cluster: {gpus: 8, nodes: [dgx-a100]}\n")).size(), 1U);
  const Problems found = problems(nodes_scenario("cluster: {nodes: [{topology: dgx-h100, count: 0}]}\n"));
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found[0].starts_with("3:47 cluster.nodes[0].count: 0 is out of range")) << found[0];
}

TEST(ClusterNodes, ATopologyWithoutAFileIsNamed) {
  const Problems found =
      problems(nodes_scenario("cluster: {nodes: [{topology: dgx-h1000, count: 4}]}\nplan: {tensor: 4}\n"));
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(found);
  EXPECT_EQ(
      found[0],
      "3:10 cluster.gpus: gpus is the sum of the nodes' devices, and topology 'dgx-h1000' of cluster.nodes has no "
      "file that says how many a node has (did you mean 'dgx-h100'?)");
}

TEST(LayersByTime, IsLeftToBeChosenAndSaysSo) {
  const Scenario s =
      read(nodes_scenario("cluster: {topology: dgx-a100, gpus: 2}\nplan: {pipeline: 2, layers_per_stage: "
                          "by_time}\ntraining: {global_batch: 4}\n"));
  EXPECT_TRUE(s.plan.layers_by_time);
  EXPECT_EQ(value_text(*find_key("plan.layers_per_stage"), s), "by_time");
  EXPECT_FALSE(read(nodes_scenario("plan: {layers_per_stage: by_time}\n")).plan.layers_by_time)
      << "one stage has all layers";
}

TEST(LayersByTime, IsForTransformersAndInPlaceOfOtherRules) {
  const Problems found = problems(
      "rehearse: 1\nmodel: {family: mlp, widths: [8, 8, 8, 8]}\ncluster: {topology: dgx-a100, gpus: 2}\nplan: "
      "{pipeline: "
      "2, layers_per_stage: by_time}\ntraining: {global_batch: 4}\n");
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(found);
  EXPECT_TRUE(found[0].find("by_time is for the layers of transformers") != std::string::npos) << found[0];
  const Problems word = problems(nodes_scenario("plan: {pipeline: 2, layers_per_stage: by_size}\n"));
  EXPECT_TRUE(std::any_of(word.begin(), word.end(), [](const std::string& text) {
    return text.find("expected auto, or by_time, or a list of integers") != std::string::npos;
  })) << testing::PrintToString(word);
}

}  // namespace
}  // namespace rehearse::plan
