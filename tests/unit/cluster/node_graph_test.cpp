// The generators of a node, the ways through it, whose NIC is whose, and rings of a mesh.
#include "sim/cluster/node_graph.h"

#include <gtest/gtest.h>

#include <map>

namespace rehearse::cluster {
namespace {

constexpr Bandwidth kNvlink(20), kPcie(12), kSocket(6), kNic(10);

// Of the DGX-1 with V100, as NCCL reports it (NVIDIA/nccl issue 671): double links along 0-3-2-1-5-6-7-4, single ones
// along 0-1-3-7-5-4-6-2.
const std::vector<std::array<int, 3>> kHybridCubeMesh = {
    {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
    {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};

NodeNumbers dgx1() {
  NodeNumbers n;
  n.inside = Inside::nvlink_mesh;
  n.devices = 8;
  n.nvlink = {kNvlink, Time::from_ns(600)};
  n.mesh = kHybridCubeMesh;
  n.pcie_switches = 4, n.sockets = 2;
  n.pcie = {kPcie, Time::from_us(1)};
  n.socket = {kSocket, Time::from_us(1)};
  n.nics = 4;
  n.nic = {kNic, Time::from_us(3)};
  return n;
}

std::vector<std::string> names(const NodeGraph& graph, const NodeWay& way) {
  std::vector<std::string> out;
  for (const int directed : way.links) {
    const NodeLink& link = graph.links[static_cast<std::size_t>(directed / 2)];
    const auto name = [&](int v) { return graph.vertices[static_cast<std::size_t>(v)].name; };
    out.push_back(directed % 2 == 0 ? name(link.a) + ">" + name(link.b) : name(link.b) + ">" + name(link.a));
  }
  return out;
}
using Names = std::vector<std::string>;

TEST(NodeGraph, AHybridCubeMeshHasSixLinksADevice) {
  std::map<int, int> sum;
  for (const auto& [a, b, count] : kHybridCubeMesh) sum[a] += count, sum[b] += count;
  for (const auto& [device, links] : sum) EXPECT_EQ(links, 6) << device;
  const NodeGraph graph = make_node(dgx1());
  // 16 pairs; 8 devices, 4 NICs and 4 switches on PCIe; one link between two sockets
  EXPECT_EQ(graph.links.size(), 16U + 8 + 4 + 4 + 1);
  EXPECT_EQ(graph.vertices.size(), 8U + 4 + 2 + 4);
}

TEST(NodeWays, NeighboursMeetDirectlyOthersOverTheWidestNeighbour) {
  const NodeGraph graph = make_node(dgx1());
  const NodeWays ways(graph);
  EXPECT_EQ(names(graph, ways.between(0, 3)), Names{"gpu0>gpu3"});
  EXPECT_EQ(ways.between(0, 3).latency, Time::from_ns(600));
  // Over 3 the second link is single, over 4 both are double.
  EXPECT_EQ(names(graph, ways.between(0, 7)), (Names{"gpu0>gpu4", "gpu4>gpu7"}));
  EXPECT_EQ(ways.between(0, 7).latency, Time::from_ns(1200));
}

TEST(NodeWays, ANicOfAnotherSwitchIsReachedThroughTheDeviceBesideIt) {
  const NodeGraph graph = make_node(dgx1());
  const NodeWays ways(graph);
  EXPECT_EQ(names(graph, ways.to_nic(0, 0)), (Names{"gpu0>pcie0", "pcie0>nic0"}));
  EXPECT_EQ(ways.to_nic(0, 0).latency, Time()) << "PCIe is part of the NIC's latency";
  EXPECT_EQ(names(graph, ways.to_nic(0, 1)), (Names{"gpu0>gpu3", "gpu3>pcie1", "pcie1>nic1"})) << "NCCL's PXN";
  EXPECT_EQ(names(graph, ways.from_nic(1, 0)), (Names{"nic1>pcie1", "pcie1>gpu3", "gpu3>gpu0"}));
}

TEST(NodeWays, WithoutNvlinkTheHostBridgesPassOn) {
  NodeNumbers n = dgx1();
  n.inside = Inside::pcie;
  n.mesh.clear();
  const NodeGraph graph = make_node(n);
  const NodeWays ways(graph);
  EXPECT_EQ(names(graph, ways.between(0, 1)), (Names{"gpu0>pcie0", "pcie0>gpu1"}));
  EXPECT_EQ(ways.between(0, 1).latency, Time::from_us(1)) << "one hop is two links through the switch";
  EXPECT_EQ(names(graph, ways.between(0, 2)), (Names{"gpu0>pcie0", "pcie0>host0", "host0>pcie1", "pcie1>gpu2"}));
  EXPECT_EQ(names(graph, ways.between(0, 7)).size(), 5U) << "and the link between sockets";
}

TEST(NodeWays, AMissingLinkIsGoneAround) {
  NodeGraph graph = make_node(dgx1());
  for (NodeLink& link : graph.links)
    if (link.a == 0 && link.b == 3) link.missing = true;
  const NodeWays ways(graph);
  EXPECT_EQ(names(graph, ways.between(0, 3)).size(), 2U);
}

TEST(OwnNics, TwoDevicesOfASwitchShareItsNic) {
  const NodeGraph graph = make_node(dgx1());
  EXPECT_EQ(own_nics(graph, NodeWays(graph), {true, true, true, true}), (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(own_nics(graph, NodeWays(graph), {false, false, false, false}), std::vector<int>(8, -1));
}

TEST(OwnNics, OfEquallyNearOnesEachDeviceTakesItsOwn) {
  NodeNumbers n = dgx1();
  n.nics = 8;
  const NodeGraph graph = make_node(n);
  EXPECT_EQ(own_nics(graph, NodeWays(graph), std::vector<bool>(8, true)), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

int parts_of(const std::vector<MeshRing>& rings) {
  int sum = 0;
  for (const MeshRing& ring : rings) sum += ring.parts;
  return sum;
}

TEST(MeshRings, TheHybridCubeMeshHasThreeOfAllEight) {
  // Six links a device, two of which a ring takes: three rings, six channels in both directions.
  const NodeGraph graph = make_node(dgx1());
  const std::vector<MeshRing> rings = mesh_rings(graph, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(parts_of(rings), 6) << "halves of a link";
  std::map<std::pair<int, int>, int> left;
  for (const auto& [a, b, count] : kHybridCubeMesh) left[{a, b}] = 2 * count;
  for (const MeshRing& ring : rings)
    for (std::size_t i = 0; i < ring.order.size(); ++i) {
      const auto pair = std::minmax(ring.order[i], ring.order[(i + 1) % ring.order.size()]);
      EXPECT_GE(left[pair] -= ring.parts, 0) << pair.first << " " << pair.second;
    }
}

TEST(MeshRings, FourAllJoinedUseEveryLink) {
  // Three cycles through four, each pair on two of them: each takes half of a pair.
  NodeNumbers n;
  n.inside = Inside::nvlink_mesh;
  n.devices = 4;
  n.nvlink = {kNvlink, Time()};
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) n.mesh.push_back({a, b, 4});
  const NodeGraph graph = make_node(n);
  EXPECT_EQ(mesh_rings(graph, {0, 1, 2, 3}).size(), 3U);
  EXPECT_EQ(parts_of(mesh_rings(graph, {0, 1, 2, 3})), 3);
  EXPECT_EQ(parts_of(mesh_rings(graph, {1, 3})), 2) << "two go back and forth over their own";
  EXPECT_TRUE(mesh_rings(graph, {2}).empty());
}

// Two devices share a switch's link to its socket; NVLink and the link between sockets are no way to the host.
TEST(NodeGraph, DevicesUnderASwitchShareItsWayToTheHost) {
  const NodeGraph graph = make_node(dgx1());
  const auto rate = [&](const std::vector<int>& devices) { return rate_to_host(graph, devices).per_s(); };
  EXPECT_EQ(rate({0, 1, 2, 3, 4, 5, 6, 7}), kPcie.per_s() / 2);
  EXPECT_EQ(rate({0, 2, 4, 6}), kPcie.per_s()) << "one a switch";
  EXPECT_EQ(rate({5}), kPcie.per_s());
  EXPECT_EQ(rate({4, 5}), kPcie.per_s() / 2);
  NodeNumbers bare = dgx1();
  bare.pcie_switches = 0;
  EXPECT_EQ(rate_to_host(make_node(bare), {0, 1, 2, 3, 4, 5, 6, 7}).per_s(), kPcie.per_s()) << "each on its socket";
  NodeNumbers without = dgx1();
  without.pcie_switches = 0, without.sockets = 1, without.pcie = {};
  EXPECT_EQ(rate_to_host(make_node(without), {0}).per_s(), 0);
}

}  // namespace
}  // namespace rehearse::cluster
