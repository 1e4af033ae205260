// Clusters of kind: composed: routes end to end, unequal nodes, placement, faults, other jobs' flows, and what is
// refused.
#include "tests/unit/cluster/composed.h"

#include <algorithm>
#include <set>

namespace rehearse::cluster {
namespace {

const std::string kTree = kNode + "fabric: {kind: fat_tree, nodes_per_unit: 4, units: 4, hop_latency: 100ns}\n";

TEST(Composed, AWayOutTakesTheOwnNicAndItsRail) {
  const auto cluster = from_text(kTree, 128);
  const Route near = cluster->route(3, 11);
  EXPECT_EQ(names_of(*cluster, near), (Names{"node0/nic3-out", "node1/nic3-in"}));
  EXPECT_EQ(near.latency, Time::from_us(3));
  EXPECT_TRUE(near.crosses_nodes);
  const Route far = cluster->route(3, 12);
  EXPECT_EQ(names_of(*cluster, far).size(), 4U) << "up from the sender's leaf, down to the receiver's";
  EXPECT_EQ(far.latency, Time::from_ns(3200));
  EXPECT_EQ(names_of(*cluster, cluster->route(9, 14)), (Names{"node1/gpu1->nvswitch", "node1/nvswitch->gpu6"}));
  EXPECT_EQ(cluster->route(9, 14).latency, Time::from_ns(600));
}

TEST(Composed, ANodeSaysWhatItIs) {
  const NodeView view = from_text(kTree, 20)->node_view(0);
  EXPECT_EQ(view.inside, Inside::nvswitch);
  EXPECT_EQ(view.port.per_s(), 100'000'000'000);
  EXPECT_EQ(view.nic.per_s(), 10'000'000'000);
  EXPECT_EQ(view.hop, Time::from_ns(600));
  EXPECT_EQ(view.net_hop, Time::from_us(3));
  EXPECT_EQ(from_text(kTree, 20)->node_view(2).devices, 4) << "the last node is half used";
  const NodeView mesh = cluster_of("dgx1-v100", 8)->node_view(0);
  EXPECT_EQ(mesh.inside, Inside::nvlink_mesh);
  EXPECT_EQ(mesh.port.per_s(), 120'000'000'000) << "six links of 20 GB/s";
}

TEST(Composed, AMeshHasRingsASwitchNeedsNone) {
  const auto mesh = cluster_of("dgx1-v100", 16);
  int parts = 0;
  for (const NodeRing& ring : mesh->rings({8, 9, 10, 11, 12, 13, 14, 15})) {
    EXPECT_EQ(std::set<int>(ring.order.begin(), ring.order.end()).size(), 8U);
    EXPECT_GE(*std::min_element(ring.order.begin(), ring.order.end()), 8) << "in the members' own numbers";
    parts += ring.parts;
  }
  EXPECT_EQ(parts, 6) << "halves of three links";
  EXPECT_TRUE(cluster_of("hgx-h200", 8)->rings({0, 1, 2, 3}).empty());
}

TEST(Composed, OnRailOnlyNetworksNvlinkLeadsToTheOtherRail) {
  const auto cluster = from_text(kNode + "fabric: {kind: rail_only, nodes: 4}\n", 32);
  EXPECT_EQ(names_of(*cluster, cluster->route(0, 11)),
            (Names{"node0/gpu0->nvswitch", "node0/nvswitch->gpu3", "node0/nic3-out", "node1/nic3-in"}));
  EXPECT_EQ(cluster->route(0, 11).latency, Time::from_ns(3600));
}

TEST(Composed, NodesMayDiffer) {
  const auto cluster = from_text(
      "nodes:\n  - {count: 1, devices: 4, inside: nvswitch, nic: {count: 4, bandwidth: 20GB/s, latency: 3us}}\n"
      "  - {count: 3, devices: 8, inside: nvswitch}\n"
      "nvlink: {bandwidth: 100GB/s, latency: 600ns}\nnic: {count: 8, bandwidth: 10GB/s, latency: 3us}\n"
      "fabric: {kind: switch, nodes: 4}\n",
      20);
  EXPECT_EQ(cluster->nodes(), 3);
  EXPECT_EQ(cluster->devices_per_node(), 8) << "of the largest";
  EXPECT_EQ(cluster->node_of(3), 0);
  EXPECT_EQ(cluster->node_of(4), 1);
  EXPECT_EQ(cluster->local_index(5), 1);
  EXPECT_EQ(cluster->devices_of(1), (std::vector<int>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(cluster->node_view(0).nic.per_s(), 20'000'000'000);
  EXPECT_EQ(resource(*cluster, cluster->route(0, 4).resources.front()).capacity.per_s(), 20'000'000'000);
}

TEST(Composed, RoutesOfSixteenThousandDevicesNeedNoTableOfPairs) {
  const auto cluster = cluster_of("hgx-b200", 16384);
  // A device has a link to the switch and one to PCIe, a NIC one to PCIe and one to its leaf: eight directions, and
  // four PCIe switches and a link between sockets a node. Adaptive: leaf to pod and pod to core, one link each.
  EXPECT_EQ(cluster->resources().size(), 2048U * 2 * (8 + 8 + 8 + 8 + 4 + 1) + 2 * (512 + 16));
  std::size_t longest = 0;
  for (int from = 0; from < 16384; from += 97)
    for (int to = 1; to < 16384; to += 89)
      if (from != to) longest = std::max(longest, cluster->route(from, to).resources.size());
  EXPECT_EQ(longest, 2U * 2 + 2 + 4) << "PCIe on both sides, two NICs, up and down two levels";
}

TEST(Placement, RanksRunWhereTheListSays) {
  for (const std::string topology : {"dgx-h100", "hgx-h200"}) {
    const auto cluster = cluster_of(topology, 12, {{"placement", "[node7, node3/gpu5, 16-18]"}});
    EXPECT_EQ(cluster->devices(), 12);
    EXPECT_EQ(cluster->nodes(), 3);
    EXPECT_EQ(cluster->node_of(0), 2) << "used nodes are numbered in the order of the cluster's: 2, 3, 7";
    EXPECT_EQ(cluster->node_of(8), 1);
    EXPECT_EQ(cluster->node_of(9), 0);
    EXPECT_EQ(cluster->devices_of(2), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(cluster->local_index(8), 5);
    const Names names = names_of(*cluster, cluster->route(0, 9));
    EXPECT_EQ(std::count(names.begin(), names.end(), "node7/nic0-out"), 1) << topology;
    EXPECT_EQ(std::count(names.begin(), names.end(), "node2/nic0-in"), 1) << topology;
  }
}

TEST(Placement, AFileListsEntriesWithComments) {
  const std::string path = write_file("hosts.txt", "node[2-3,5]  # two and one\n7 8\n");
  const auto cluster = cluster_of("hgx-h200", 26, {{"placement", "'" + path + "'"}});
  EXPECT_EQ(cluster->node_of(0), 2) << "device 7 is of node 0, 8 of node 1";
  EXPECT_EQ(cluster->nodes(), 5);
}

std::string conditions_refused(const Overrides& overrides, int devices = 16) {
  return problems_of(kTree, devices, overrides);
}

TEST(Placement, WhatCannotBeIsRefusedByItsEntry) {
  EXPECT_EQ(conditions_refused({{"placement", "[0-7]"}}),
            "0:0 cluster.placement: places 8 devices, 16 ranks need one each\n");
  EXPECT_EQ(conditions_refused({{"placement", "[0-15, 3]"}}), "") << "more than are needed may be listed";
  EXPECT_EQ(conditions_refused({{"placement", "[0-14, 3]"}}), "0:0 cluster.placement: device 3 is there twice\n");
  EXPECT_EQ(conditions_refused({{"placement", "[node16, 0-7]"}}),
            "0:0 cluster.placement[0]: 'node16': there are 16 nodes, node0 to node15\n");
  EXPECT_EQ(conditions_refused({{"placement", "[node0/gpu8, 0-15]"}}),
            "0:0 cluster.placement[0]: 'node0/gpu8': node0 has 8 devices, gpu0 to gpu7\n");
  EXPECT_NE(conditions_refused({{"placement", "[rack1, 0-15]"}}).find("expected a device's number"), std::string::npos);
  EXPECT_NE(conditions_refused({{"placement", "[128, 0-15]"}}).find("there are 128 devices"), std::string::npos);
}

TEST(Faults, ALinkThatLostBandwidthKeepsItsName) {
  const auto cluster = from_text(
      kTree, 16, {{"faults", "[{link: 'node0/nic?-out', share: 0.25}, {link: node1/nic2-in, bandwidth: 4GB/s}]"}});
  for (const Resource& r : cluster->resources()) {
    const bool quarter = r.name.starts_with("node0/nic") && r.name.ends_with("-out"), four = r.name == "node1/nic2-in";
    if (r.kind != ResourceKind::nic) continue;
    EXPECT_EQ(r.capacity.per_s(), quarter ? 2'500'000'000 : four ? 4'000'000'000 : 10'000'000'000) << r.name;
    EXPECT_EQ(r.nominal.per_s(), quarter || four ? 10'000'000'000 : 0) << r.name;
  }
}

TEST(Faults, WithoutItsNicADeviceUsesANeighbours) {
  const auto cluster = from_text(kTree, 16, {{"faults", "[{link: node0/nic3-out, missing: true}]"}});
  EXPECT_NE(cluster->rail_of(3), 3);
  EXPECT_EQ(cluster->rail_of(11), 3) << "node 1 has its own";
  const Names names = names_of(*cluster, cluster->route(3, 11));
  EXPECT_EQ(names.front(), "node0/gpu3->nvswitch") << "over NVLink to the device next to the other NIC";
}

TEST(Faults, ALongerLinkTakesLonger) {
  const auto cluster = from_text(kTree, 16, {{"faults", "[{link: node0/nic3-*, latency: 7us}]"}});
  EXPECT_EQ(cluster->route(3, 11).latency, Time::from_us(10));
  EXPECT_EQ(cluster->route(11, 3).latency, Time::from_us(10));
  EXPECT_EQ(cluster->route(2, 10).latency, Time::from_us(3));
}

TEST(Faults, WhatCannotBeIsRefused) {
  EXPECT_NE(conditions_refused({{"faults", "[{link: node9/nic0-out, share: 0.5}]"}}).find("no link is called"),
            std::string::npos)
      << "node 9 is there, but no rank uses it";
  EXPECT_NE(
      conditions_refused({{"faults", "[{link: 'node0/nic*', missing: true}]"}}).find("no way from node0 to node1"),
      std::string::npos);
  EXPECT_NE(conditions_refused({{"faults", "[{link: node0/nic0-out}]"}}).find("expected what is wrong with it"),
            std::string::npos);
  EXPECT_NE(conditions_refused({{"faults", "[{link: node0/nic0-out, share: 2}]"}}).find("share"), std::string::npos);
}

TEST(Background, AFlowTakesItsRateFromTheWholeWay) {
  for (const std::string topology : {"dgx-h100", "hgx-h200"}) {
    const auto quiet = cluster_of(topology, 16);
    const auto busy = cluster_of(topology, 16, {{"background", "[{from: node0/gpu0, to: node5/gpu0, rate: 10GB/s}]"}});
    const auto out = [](const Cluster& c) {
      for (const Resource& r : c.resources())
        if (r.name == "node0/nic0-out") return r.capacity.per_s();
      return std::int64_t{0};
    };
    EXPECT_EQ(out(*quiet) - out(*busy), 10'000'000'000) << topology;
    EXPECT_EQ(busy->devices(), 16);
  }
  const auto nothing = cluster_of("dgx-h100", 16, {{"background", "[{from: node0/gpu0, to: node5/gpu0, rate: 0}]"}});
  for (const Resource& r : nothing->resources()) EXPECT_EQ(r.nominal.per_s(), 0) << r.name << " lacks nothing";
  const auto flooded = from_text(kTree, 16, {{"background", "[{from: node0/gpu0, to: node5/gpu0, rate: 1TB/s}]"}});
  EXPECT_EQ(resource(*flooded, flooded->route(0, 8).resources.front()).capacity.per_s(), 500'000'000)
      << "a twentieth is left";
}

TEST(ComposedFiles, ProblemsHaveTheirPlace) {
  EXPECT_EQ(problems_of("node: {devices: 8, inside: nvswitch}\n", 8), "5:7 node: needs the block 'nvlink' beside it\n");
  EXPECT_NE(problems_of("node: {devices: 2, inside: none}\n", 2).find("nothing between them"), std::string::npos);
  EXPECT_NE(
      problems_of(
          kNode + "fabric: {kind: fat_tree, nodes_per_unit: 4, units: 4, hop_latency: 1us, oversubscription: 3}\n", 8)
          .find("4 cables below over 3 are 1.333 uplinks"),
      std::string::npos);
  EXPECT_NE(
      problems_of(kNode + "fabric: {kind: fat_tree, nodes_per_unit: 4, units: 4, hop_latency: 1us, spines: 3}\n", 8)
          .find("4 uplinks of a leaf do not divide evenly over 3"),
      std::string::npos);
  EXPECT_NE(problems_of(kSingle + "fabric: {kind: torus, dims: [4]}\n", 4).find("two or three sizes"),
            std::string::npos);
  EXPECT_NE(
      problems_of(
          kSingle +
              "fabric: {kind: dragonfly, groups: 9, routers: 2, nodes_per_router: 1, global_links: 2, hop_latency: 0, "
              "local: {bandwidth: 1GB/s}, global: {bandwidth: 1GB/s}}\n",
          4)
          .find("do not reach the 8 other groups"),
      std::string::npos);
  EXPECT_NE(
      problems_of(kNode + "fabric: {kind: switch, nodes: 2}\nrouting: {policy: random}\n", 8).find("routing.policy"),
      std::string::npos);
  EXPECT_NE(problems_of(kNode + "fabric: {kind: switch, nodes: 2}\n", 17).find("holds at most 16"), std::string::npos);
  EXPECT_NE(problems_of(kNode + "fabric: {kind: switch, nodes: 2}\nfabrik: 1\n", 8).find("fabrik: unknown key"),
            std::string::npos);
}

TEST(ComposedFiles, LinksWrittenOut) {
  const std::string text = kSingle +
                           "fabric:\n  kind: links\n  nodes: 3\n  switches: [a, b]\n"
                           "  links: [{between: [a, b], count: 2, bandwidth: 5GB/s, latency: 100ns}]\n"
                           "  attach: {a: [node0/nic0, node1/nic0], b: [node2/nic0]}\n";
  const auto cluster = from_text(text, 3);
  EXPECT_EQ(cluster->route(0, 1).resources.size(), 2U);
  const Route far = cluster->route(0, 2);
  EXPECT_EQ(names_of(*cluster, far), (Names{"node0/nic0-out", "a->b", "node2/nic0-in"}));
  EXPECT_EQ(far.latency, Time::from_ns(3100));
  std::string broken = text;
  broken.replace(broken.find("b: [node2"), 1, "c");
  EXPECT_NE(problems_of(broken, 3).find("'c' is no switch"), std::string::npos);
  broken = text;
  broken.replace(broken.find("node2/nic0"), 10, "node1/nic0");
  EXPECT_NE(problems_of(broken, 3).find("node1/nic0 hangs on 'a' already"), std::string::npos);
  broken = text;
  broken.replace(broken.find(", b: [node2/nic0]"), 17, "");
  EXPECT_NE(problems_of(broken, 3).find("no way from"), std::string::npos) << "nothing joins node 2";
}

TEST(Matches, StarsAndQuestionMarks) {
  const auto cluster = [](const char* pattern) {
    return problems_of(kTree, 16, {{"faults", std::string("[{link: '") + pattern + "', share: 0.5}]"}});
  };
  EXPECT_EQ(cluster("*"), "");
  EXPECT_EQ(cluster("node?/nic3-*"), "");
  EXPECT_EQ(cluster("*leaf3->spine*"), "");
  EXPECT_NE(cluster("node?nic3"), "");
  EXPECT_NE(cluster(""), "");
}

TEST(HostMemory, IsTheTopologysOrThatOfACommonServer) {
  const HostMemory common = from_text(kTree, 8)->node_view(0).host;
  EXPECT_EQ(common.size.count(), std::int64_t{1} << 40);
  EXPECT_EQ(common.bandwidth.per_s(), 409'600'000'000);
  const HostMemory written =
      from_text(kTree + "host_memory: {size: 512GB, bandwidth: 136.5GB/s}\n", 8)->node_view(0).host;
  EXPECT_EQ(written.size.count(), 512'000'000'000);
  EXPECT_EQ(written.bandwidth.per_s(), 136'500'000'000);
  EXPECT_EQ(cluster_of("dgx-a100", 8)->node_view(0).host.size.count(), 2'000'000'000'000) << "a fat tree's";
  EXPECT_EQ(cluster_of("dgx-a100", 8, {{"host_memory.size", "1TB"}})->node_view(0).host.size.count(),
            1'000'000'000'000);
  EXPECT_EQ(cluster_of("local", 2)->node_view(0).host.size.count(), 0) << "this machine's is not known";
  EXPECT_EQ(cluster_of("dgx1-v100", 8)->node_view(0).to_host.per_s(), 15'750'000'000 * 762 / 2000);
  EXPECT_EQ(cluster_of("dgx1-v100", 1)->node_view(0).to_host.per_s(), 15'750'000'000 * 762 / 1000);
  EXPECT_EQ(cluster_of("dgx-a100", 8)->node_view(0).to_host.per_s(), 0) << "has no PCIe";
}

TEST(HostMemory, WhatCannotBeIsSaid) {
  EXPECT_NE(problems_of(kTree + "host_memory: {size: 10kB}\n", 8).find("host_memory.size: 10kB is out of range"),
            std::string::npos);
  EXPECT_NE(
      problems_of(kTree + "host_memory: {bandwidth: 1kB/s}\n", 8).find("host_memory.bandwidth: 1kB/s is out of range"),
      std::string::npos);
  EXPECT_NE(problems_of(kTree + "host_memory: {siez: 1TB}\n", 8).find("host_memory.siez: unknown key"),
            std::string::npos);
}

}  // namespace
}  // namespace rehearse::cluster
