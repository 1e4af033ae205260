// Clusters of several kinds of nodes: which device a rank is on, what links between kinds give, what is refused.
#include <gtest/gtest.h>

#include "tests/unit/cluster/composed.h"

namespace rehearse::cluster {
namespace {

const std::string kTwo = "[{topology: dgx-h100, count: 2}, {topology: dgx-a100, count: 2}]";

std::unique_ptr<Cluster> mixed(int devices, Overrides more = {}, const std::string& nodes = kTwo) {
  more.insert(more.begin(), {"nodes", nodes});
  return cluster_of("dgx-h100", devices, more);
}

std::string refusal(const std::string& topology, const std::string& nodes, int devices = 8, Overrides more = {}) {
  try {
    more.insert(more.begin(), {"nodes", nodes});
    cluster_of(topology, devices, more);
  } catch (const InputError& error) {
    return error.diagnostics().front().path + ": " + error.diagnostics().front().message;
  }
  return "";
}

TEST(Mixed, EachRankIsOnItsNodesDevice) {
  const auto cluster = mixed(32);
  EXPECT_EQ(cluster->device_names(), (Names{"h100-sxm", "a100-sxm-80g"}));
  EXPECT_EQ(cluster->device_name(), "h100-sxm");
  for (int rank = 0; rank < 32; ++rank) EXPECT_EQ(cluster->kind_of(rank), rank / 16) << "rank " << rank;
  EXPECT_EQ(cluster->name(), "DGX H100 SuperPOD: 2 nodes of h100-sxm, 2 of a100-sxm-80g");
}

TEST(Mixed, OnlyKindsInUseCountAndPlacementOrdersThem) {
  EXPECT_EQ(mixed(16)->device_names(), (Names{"h100-sxm"}));
  const auto turned = mixed(32, {{"placement", "['node[2-3]', 'node[0-1]']"}});
  EXPECT_EQ(turned->device_names(), (Names{"a100-sxm-80g", "h100-sxm"}));
  EXPECT_EQ(turned->kind_of(0), 0);
  EXPECT_EQ(turned->kind_of(31), 1);
  EXPECT_EQ(turned->node_view(0).port.per_s(), 370'800'000'000) << "nodes in use are in the order of nodes";
}

TEST(Mixed, NodesHaveTheirOwnPortsAndNics) {
  const auto cluster = mixed(32);
  EXPECT_EQ(resource(*cluster, cluster->route(0, 1).resources.front()).capacity.per_s(), 370'800'000'000);
  EXPECT_EQ(resource(*cluster, cluster->route(16, 17).resources.front()).capacity.per_s(), 240'000'000'000);
  EXPECT_EQ(cluster->node_view(0).host.bandwidth.per_s(), 614'400'000'000);
  EXPECT_EQ(cluster->node_view(2).host.bandwidth.per_s(), 409'600'000'000);
}

TEST(Mixed, BetweenKindsTheSlowerNicLimitsAndTheFabricIsTheTopologys) {
  const auto cluster = mixed(32);
  const Route rail = cluster->route(0, 16);  // NIC 0 of nodes 0 and 2, on one leaf
  EXPECT_EQ(names_of(*cluster, rail), (Names{"node0/nic0-out", "node2/nic0-in"}));
  EXPECT_EQ(resource(*cluster, rail.resources[0]).capacity.per_s(), 47'000'000'000);
  EXPECT_EQ(resource(*cluster, rail.resources[1]).capacity.per_s(), 24'000'000'000);
  const Route across = cluster->route(0, 17);
  ASSERT_EQ(across.resources.size(), 4U);
  EXPECT_EQ(resource(*cluster, across.resources[1]).capacity.per_s(), 32 * 47'000'000'000)
      << "a leaf's uplinks are cables of the fabric's own NICs, those of DGX H100";
  EXPECT_EQ(across.latency, Time::from_ns(2700 + 2 * 330));
}

TEST(Mixed, AnEntryMayChangeItsNodes) {
  const auto cluster =
      mixed(32, {},
            "[{topology: dgx-h100, count: 2}, {topology: dgx-h100, count: 2, device: h100-pcie, nic: {count: 8, "
            "bandwidth: 100Gbps, efficiency: 1, latency: 5us}}]");
  EXPECT_EQ(cluster->device_names(), (Names{"h100-sxm", "h100-pcie"}));
  EXPECT_EQ(resource(*cluster, cluster->route(16, 24).resources.front()).capacity.per_s(), 12'500'000'000);
  EXPECT_EQ(cluster->route(0, 16).latency, Time::from_us(5)) << "the longer of the two";
}

TEST(Mixed, RefusesWhatCannotBe) {
  EXPECT_NE(refusal("dgx-h100", "[{topology: dgx-h1000, count: 1}]").find("unknown topology 'dgx-h1000'"),
            std::string::npos);
  EXPECT_NE(refusal("dgx-h100", "[{topology: local, count: 1}]").find("'local' is of kind: local"), std::string::npos);
  EXPECT_EQ(refusal("dgx-h100", "[{topology: dgx-h100, count: 2000}, {topology: dgx-a100, count: 49}]"),
            "cluster.nodes: the nodes add up to 2049, the fabric of 'DGX H100 SuperPOD' holds at most 2048");
  EXPECT_NE(refusal("local", "[{topology: dgx-h100, count: 1}]").find("only clusters of accelerators"),
            std::string::npos);
  // What each entry has of its own would be overridden in none.
  EXPECT_NE(refusal("dgx-h100", kTwo, 32, {{"nvlink.efficiency", "0.3"}})
                .find("cluster.overrides.nvlink.efficiency: nvlink is of a cluster of one kind of nodes"),
            std::string::npos);
  EXPECT_NE(refusal("dgx-h100", kTwo, 32, {{"device", "h100-pcie"}}).find("device is of a cluster of one kind"),
            std::string::npos);
}

}  // namespace
}  // namespace rehearse::cluster
