// Topology files, their errors and overrides, and the routes of the clusters built from them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "sim/cluster/topology.h"
#include "tests/support/temporary.h"

namespace rehearse::cluster {
namespace {

const std::string kRoot = REHEARSE_SOURCE_DIR;

std::unique_ptr<Cluster> build(const std::string& topology, int devices, const Overrides& overrides = {},
                               int threads = 0) {
  return build_cluster(topology, devices, overrides, threads, kRoot);
}

std::vector<std::string> names_on(const Cluster& cluster, int from, int to) {
  std::vector<std::string> names;
  for (const ResourceId id : cluster.route(from, to).resources)
    names.push_back(cluster.resources().at(static_cast<std::size_t>(id)).name);
  return names;
}

std::int64_t capacity(const Cluster& cluster, int from, int to, std::size_t index) {
  return cluster.resources().at(static_cast<std::size_t>(cluster.route(from, to).resources.at(index))).capacity.per_s();
}

// The text of all diagnostics that building it raises; "" if it builds.
std::string errors_of(const std::string& topology, int devices, const Overrides& overrides = {}) {
  try {
    build(topology, devices, overrides);
    return "";
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& d : error.diagnostics()) text += d.text() + "\n";
    return text;
  }
}

std::string write_topology(const std::string& name, const std::string& text) {
  const std::string path = test::temporary_path(name);
  std::ofstream(path) << text;
  return path;
}

TEST(DgxA100, DevicesOfANodeMeetAtTheSwitch) {
  const auto cluster = build("dgx-a100", 64);
  const Route route = cluster->route(9, 14);
  EXPECT_EQ(names_on(*cluster, 9, 14), (std::vector<std::string>{"node1/gpu1/nvlink-out", "node1/gpu6/nvlink-in"}));
  EXPECT_FALSE(route.crosses_nodes);
  EXPECT_EQ(route.latency, Time::from_ns(600));
  EXPECT_EQ(capacity(*cluster, 9, 14, 0), 240'000'000'000) << "12 links of 20 GB/s payload";
}

// A route into one that was another's, and its latency alone.
TEST(FatTrees, RoutesAreFoundInMemoryThatIsUsedAgain) {
  for (const char* topology : {"dgx-a100", "dgx-h100", "tpu-v4"}) {
    const auto cluster = build(topology, 512);
    Route found;
    found.shares = {1};
    for (int from = 0; from < 512; from += 13)
      for (int to = 0; to < 512; to += 7) {
        if (from == to) continue;
        const Route route = cluster->route(from, to);
        cluster->find_route(from, to, found);
        EXPECT_EQ(found.resources, route.resources) << topology << " " << from << " " << to;
        EXPECT_EQ(found.latency, route.latency);
        EXPECT_EQ(found.crosses_nodes, route.crosses_nodes);
        EXPECT_EQ(found.shares, route.shares);
        EXPECT_EQ(cluster->latency(from, to), route.latency);
      }
  }
}

TEST(DgxA100, OneRailOfAUnitStaysInItsLeaf) {
  const auto cluster = build("dgx-a100", 320);
  EXPECT_EQ(names_on(*cluster, 3, 19 * 8 + 3), (std::vector<std::string>{"node0/nic3-out", "node19/nic3-in"}));
  EXPECT_TRUE(cluster->route(3, 11).crosses_nodes);
  EXPECT_EQ(cluster->route(3, 11).latency, Time::from_ns(2700));
  EXPECT_EQ(capacity(*cluster, 3, 11, 0), 24'000'000'000);
}

TEST(DgxA100, OtherRailsAndOtherUnitsCrossTheSpine) {
  const auto cluster = build("dgx-a100", 320);
  EXPECT_EQ(names_on(*cluster, 3, 12),
            (std::vector<std::string>{"node0/nic3-out", "unit0/leaf3-up", "unit0/leaf4-down", "node1/nic4-in"}));
  EXPECT_EQ(names_on(*cluster, 3, 20 * 8 + 3),
            (std::vector<std::string>{"node0/nic3-out", "unit0/leaf3-up", "unit1/leaf3-down", "node20/nic3-in"}))
      << "node 20 is the first of the second unit of 20";
  EXPECT_EQ(cluster->route(3, 12).latency, Time::from_ns(2700 + 2 * 130)) << "two switches more than the leaf";
  EXPECT_EQ(capacity(*cluster, 3, 12, 1), 20 * 24'000'000'000) << "as much up as 20 NICs below";
}

TEST(DgxH100, HasItsOwnRatesAndUnits) {
  const auto cluster = build("dgx-h100", 512);
  EXPECT_EQ(cluster->device_name(), "h100-sxm");
  EXPECT_EQ(capacity(*cluster, 0, 1, 0), 370'800'000'000) << "18 links of 20.6 GB/s payload";
  EXPECT_EQ(capacity(*cluster, 0, 8, 0), 47'000'000'000);
  EXPECT_EQ(cluster->route(0, 31 * 8).resources.size(), 2U) << "32 nodes share a unit";
  EXPECT_EQ(cluster->route(0, 32 * 8).resources.size(), 4U);
}

TEST(FatTree, EveryPortIsItsOwnResource) {
  const auto cluster = build("dgx-a100-40g", 24);
  std::set<ResourceId> outs;
  for (int d = 0; d < 24; ++d) {
    outs.insert(cluster->route(d, d % 8 == 0 ? d + 1 : d - 1).resources.front());
    outs.insert(cluster->route(d, (d + 8) % 24).resources.front());
  }
  EXPECT_EQ(outs.size(), 48U) << "24 NVLink ports out and 24 NICs out";
}

TEST(FatTree, SixteenThousandDevicesHaveFourResourcesEachAndTheLeaves) {
  const auto cluster = build("dgx-h100", 16384);
  EXPECT_EQ(cluster->resources().size(), 4U * 16384 + 64 * 8 * 2);
  EXPECT_EQ(names_on(*cluster, 16383, 0).front(), "node2047/nic7-out");
}

TEST(FatTree, APartialLastNodeIsAllowed) {
  const auto cluster = build("dgx-a100", 12);
  EXPECT_EQ(cluster->devices(), 12);
  EXPECT_EQ(names_on(*cluster, 8, 11).back(), "node1/gpu3/nvlink-in");
}

TEST(FatTree, TwoDevicesShareANicWhereThereAreHalfAsMany) {
  const auto cluster = build("dgx-a100", 16, {{"nic.count", "4"}});
  EXPECT_EQ(cluster->route(0, 8).resources, cluster->route(1, 9).resources);
  EXPECT_NE(cluster->route(0, 8).resources, cluster->route(2, 10).resources);
}

TEST(Overrides, ChangeOneNumberAndKeepTheRest) {
  const auto cluster = build("dgx-a100", 16, {{"nic.bandwidth", "100Gbps"}, {"fabric.oversubscription", "2"}});
  EXPECT_EQ(capacity(*cluster, 0, 8, 0), 12'000'000'000) << "the efficiency of 0.96 stays";
  EXPECT_EQ(capacity(*cluster, 0, 9, 1), 10 * 12'000'000'000);
  EXPECT_EQ(capacity(*cluster, 0, 1, 0), 240'000'000'000);
}

TEST(Overrides, AnUnknownPathNamesTheNearest) {
  const std::string text = errors_of("dgx-a100", 8, {{"nic.bandwith", "100Gbps"}});
  EXPECT_NE(text.find("nic.bandwith"), std::string::npos) << text;
  EXPECT_NE(text.find("'bandwidth'"), std::string::npos) << text;
}

TEST(Overrides, ProblemsNameTheirKeyInTheScenario) {
  EXPECT_EQ(errors_of("dgx-a100", 8, {{"nic.bandwidth", "100"}}),
            "error: cluster.overrides.nic.bandwidth: a bandwidth needs its unit, found the bare number '100' (e.g. "
            "'bandwidth: 400Gbps')\n")
      << "one message, and not one of the topology file";
  EXPECT_EQ(errors_of("dgx-a100", 8, {{"nic.bandwidth", "8Mbps"}}), "") << "1 MB/s, 0.96 of it payload: just enough";
}

TEST(Overrides, LinksSlowerThanAnyAreErrors) {
  EXPECT_EQ(errors_of("dgx-a100", 8, {{"nic.bandwidth", "1kB/s"}}),
            "error: cluster.overrides.nic.bandwidth: 1kB/s is out of range, expected at least 1MB/s\n");
  EXPECT_EQ(errors_of("dgx-a100", 8, {{"fabric.hop_latency", "2s"}}),
            "error: cluster.overrides.fabric.hop_latency: 2s is out of range, expected at most 1s\n");
}

TEST(Topologies, AnUnknownNameNamesTheNearest) {
  const std::string text = errors_of("dgx-a10", 8);
  EXPECT_NE(text.find("did you mean 'dgx-a100'?"), std::string::npos) << text;
}

TEST(Topologies, TheShippedOnesAreListed) {
  const std::vector<std::string> names = topology_names(kRoot);
  for (const char* name : {"dgx-a100", "dgx-a100-40g", "dgx-h100", "local"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

TEST(Topologies, TooManyDevicesNameTheLimit) {
  const std::string text = errors_of("dgx-a100", 4481);
  EXPECT_NE(text.find("4480"), std::string::npos) << text;
  EXPECT_NE(text.find("fabric.units"), std::string::npos) << text;
  EXPECT_EQ(errors_of("dgx-a100", 4480), "");
  EXPECT_EQ(errors_of("dgx-a100", 8192, {{"fabric.units", "60"}}), "");
}

TEST(Topologies, NoDevicesAndAbsurdlyManyAreErrors) {
  EXPECT_NE(errors_of("dgx-a100", 0), "");
  EXPECT_NE(errors_of("local", 0), "");
  EXPECT_NE(errors_of("local", 2'000'000'000), "");
}

TEST(BadTopology, AllProblemsAreReportedAtOnceWithTheirPlace) {
  const std::string path = write_topology("bad.yaml", R"(topology: 1
kind: fat_tree
name: bad
device: x
node: {devices: 8}
nvlink: {bandwidth: 300, efficiency: 0.8, latency: 600ns}
nic: {count: 3, bandwidth: 200Gbps, efficiency: 2, latency: 1us}
fabric: {nodes_per_unit: 20, hop_latency: 1us, unit: 3}
)");
  const std::string text = errors_of(path, 8);
  EXPECT_NE(text.find(path + ":6:"), std::string::npos) << "a bandwidth without a unit\n" << text;
  EXPECT_NE(text.find("nvlink.bandwidth"), std::string::npos) << text;
  EXPECT_NE(text.find("nic.efficiency"), std::string::npos) << text;
  EXPECT_NE(text.find("3 NICs do not divide 8 devices"), std::string::npos) << text;
  EXPECT_NE(text.find("fabric.units"), std::string::npos) << "required and missing\n" << text;
  EXPECT_NE(text.find("fabric.unit:"), std::string::npos) << "unknown key\n" << text;
}

TEST(BadTopology, OtherSchemaKindAndFileAreErrors) {
  EXPECT_NE(errors_of(write_topology("v2.yaml", "topology: 2\nkind: local\nname: a\ndevice: local\n"), 2), "");
  EXPECT_NE(errors_of(write_topology("kind.yaml", "topology: 1\nkind: torus\nname: a\ndevice: local\n"), 2), "");
  EXPECT_NE(errors_of(write_topology("list.yaml", "- 1\n- 2\n"), 2), "");
  EXPECT_NE(errors_of(write_topology("empty.yaml", ""), 2), "");
  EXPECT_NE(errors_of("/nonexistent/topology.yaml", 2), "");
}

TEST(BadTopology, AZeroBandwidthIsAnErrorNotADivision) {
  EXPECT_NE(errors_of("dgx-a100", 8, {{"nic.bandwidth", "0"}}), "");
  EXPECT_NE(errors_of("local", 2, {{"loopback.bandwidth", "0"}}), "");
}

TEST(LocalHost, RanksShareCoresAndTheLoopback) {
  const auto cluster = build("local", 4, {{"host.cores", "16"}});
  EXPECT_EQ(cluster->host_sharing().cores, 16);
  EXPECT_EQ(cluster->host_sharing().threads_per_rank, 4) << "cores / ranks";
  EXPECT_EQ(cluster->devices_per_node(), 4);
  EXPECT_EQ(cluster->resources().size(), 1U);
  EXPECT_EQ(cluster->route(0, 3).resources, cluster->route(2, 1).resources);
}

TEST(LocalHost, MoreRanksThanCoresHaveOneThreadEach) {
  const auto cluster = build("local", 64, {{"host.cores", "2"}});
  EXPECT_EQ(cluster->host_sharing().threads_per_rank, 1);
  EXPECT_GE(build("local", 1)->host_sharing().cores, 1) << "auto finds at least one core";
}

TEST(LocalHost, ThreadsPerRankCanBeChosen) {
  EXPECT_EQ(build("local", 2, {{"host.cores", "8"}}, 3)->host_sharing().threads_per_rank, 3);
  EXPECT_EQ(build("dgx-a100", 8, {}, 3)->host_sharing().cores, 0) << "accelerators share no host cores";
}

}  // namespace
}  // namespace rehearse::cluster
