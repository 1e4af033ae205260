// Ways to NICs with and without direct transfers (GPUDirect RDMA).
#include "tests/unit/cluster/composed.h"

namespace rehearse::cluster {
namespace {

// Two sockets with a PCIe switch each, on which hang two devices and a NIC.
const std::string kPcieNode =
    "node: {devices: 4, inside: nvswitch}\nnvlink: {bandwidth: 100GB/s, latency: 600ns}\n"
    "pcie: {switches: 2, bandwidth: 16GB/s, latency: 1us}\nhost: {sockets: 2, bandwidth: 10GB/s, latency: 1us}\n"
    "nic: {count: 2, bandwidth: 25GB/s, latency: 3us}\nhost_memory: {size: 1TiB, bandwidth: 100GB/s}\n"
    "fabric: {kind: switch, nodes: 4}\n";

TEST(GpuDirect, GoesFromTheDeviceToTheNicBesideIt) {
  const auto cluster = from_text(kPcieNode, 8);
  EXPECT_TRUE(cluster->gpudirect());
  EXPECT_EQ(names_of(*cluster, cluster->route(0, 4)),
            (Names{"node0/gpu0->pcie0", "node0/pcie0->nic0", "node0/nic0-out", "node1/nic0-in", "node1/nic0->pcie0",
                   "node1/pcie0->gpu0"}));
  for (const Resource& r : cluster->resources()) EXPECT_EQ(r.name.find("host-memory"), std::string::npos);
}

TEST(GpuDirect, OffEveryByteGoesUpToTheHostAndBackDown) {
  const auto cluster = from_text(kPcieNode + "gpudirect: false\n", 8);
  EXPECT_FALSE(cluster->gpudirect());
  const Route route = cluster->route(0, 6);  // the second socket's device there
  EXPECT_EQ(names_of(*cluster, route),
            (Names{"node0/gpu0->pcie0", "node0/pcie0->host0", "node0/host0->pcie0", "node0/pcie0->nic0",
                   "node0/host-memory", "node0/nic0-out", "node1/nic1-in", "node1/nic1->pcie1", "node1/pcie1->host1",
                   "node1/host1->pcie1", "node1/pcie1->gpu2", "node1/host-memory"}));
  EXPECT_EQ(route.latency, Time::from_us(3 + 2)) << "the NICs', and a hop of PCIe to each host";
  EXPECT_EQ(resource(*cluster, route.resources[4]).capacity.per_s(), 50'000'000'000) << "written and read";
  EXPECT_EQ(names_of(*cluster, cluster->route(0, 1)),
            names_of(*from_text(kPcieNode, 8), from_text(kPcieNode, 8)->route(0, 1)))
      << "within a node nothing changes";
}

// Both devices of a socket share the switch's link to the host, 16 GB/s, where their NIC has 25.
TEST(GpuDirect, OffANicHasWhatPcieLeavesIt) {
  EXPECT_EQ(from_text(kPcieNode, 8)->node_view(0).nic.per_s(), 25'000'000'000);
  EXPECT_EQ(from_text(kPcieNode + "gpudirect: false\n", 8)->node_view(0).nic.per_s(), 8'000'000'000);
}

TEST(GpuDirect, NeedsAWayToTheHost) {
  EXPECT_NE(problems_of(kNode + "fabric: {kind: switch, nodes: 4}\ngpudirect: false\n", 16).find("no PCIe links"),
            std::string::npos);
  try {
    cluster_of("dgx-a100", 16, {{"gpudirect", "false"}});
    ADD_FAILURE() << "a fat_tree has no PCIe";
  } catch (const InputError& error) {
    EXPECT_EQ(error.diagnostics().front().path, "cluster.gpudirect");
  }
  EXPECT_FALSE(cluster_of("ethernet-a100", 16, {{"gpudirect", "false"}})->gpudirect());
}

}  // namespace
}  // namespace rehearse::cluster
