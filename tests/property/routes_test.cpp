// What holds of routes on every shipped topology, whatever its shape: between any two devices there is one, it is the
// same each time, its links follow one another, no resource is in it twice, and the parts of a spread flow add up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "sim/cluster/topology.h"

namespace rehearse::cluster {
namespace {

std::string root_name() {
  return REHEARSE_SOURCE_DIR;
}

// Ends of a resource by its name: "node0/gpu0->nvswitch", "spine0->unit0/leaf0#2", "node0/nic0-out"; "" where the name
// says no more.
std::pair<std::string, std::string> ends_of(std::string name) {
  if (name.ends_with("-out")) return {name.substr(0, name.size() - 4), ""};
  if (name.ends_with("-in")) return {"", name.substr(0, name.size() - 3)};
  name = name.substr(0, name.find('#'));
  const std::size_t arrow = name.find("->");
  const std::string from = name.substr(0, arrow), to = name.substr(arrow + 2);
  const bool in_node = from.starts_with("node");
  return {from, in_node ? from.substr(0, from.find('/') + 1) + to : to};
}

void expect_sound(const Cluster& cluster, int from, int to) {
  const Route route = cluster.route(from, to);
  const std::string what = cluster.name() + " " + std::to_string(from) + " to " + std::to_string(to);
  ASSERT_FALSE(route.resources.empty()) << what;
  EXPECT_EQ(route.resources, cluster.route(from, to).resources) << what;
  EXPECT_EQ(route.crosses_nodes, cluster.node_of(from) != cluster.node_of(to)) << what;
  EXPECT_GT(route.latency, Time()) << what;
  EXPECT_EQ(std::set<ResourceId>(route.resources.begin(), route.resources.end()).size(), route.resources.size())
      << what;
  if (!route.shares.empty()) return;  // several ways at once
  std::string at;
  for (const ResourceId id : route.resources) {
    const std::string& name = cluster.resources()[static_cast<std::size_t>(id)].name;
    if (name.find("->") == std::string::npos && !name.ends_with("-out") && !name.ends_with("-in")) return;
    const auto [begin, end] = ends_of(name);
    // Where a topology says nothing of PCIe, a device is beside its NIC.
    const bool beside = at.find("/gpu") != std::string::npos && begin.find("/nic") != std::string::npos;
    if (!at.empty() && !begin.empty() && !beside) {
      EXPECT_EQ(at, begin) << what << ": " << name;
    }
    at = end;
  }
}

std::vector<std::string> composed_topologies() {
  std::vector<std::string> names;
  for (const std::string& name : topology_names(root_name()))
    if (name != "local" && !name.starts_with("dgx-")) names.push_back(name);
  return names;
}

TEST(Routes, AreSoundOnEveryShippedTopology) {
  std::mt19937 random(3);
  const auto names = composed_topologies();
  ASSERT_GE(names.size(), 14U);
  for (const std::string& name : names)
    for (const int devices : {8, 64, 256}) {
      const auto cluster = build_cluster(name, devices, {}, 0, root_name());
      for (int draw = 0; draw < 300; ++draw) {
        const int from = static_cast<int>(random() % static_cast<unsigned>(devices));
        const int to = static_cast<int>(random() % static_cast<unsigned>(devices));
        if (from != to) expect_sound(*cluster, from, to);
      }
    }
}

TEST(Routes, AreAsLongBackAsThere) {
  std::mt19937 random(4);
  for (const std::string& name : composed_topologies()) {
    const auto cluster = build_cluster(name, 128, {}, 0, root_name());
    for (int draw = 0; draw < 200; ++draw) {
      const int from = static_cast<int>(random() % 128), to = static_cast<int>(random() % 128);
      if (from == to) continue;
      const Route there = cluster->route(from, to), back = cluster->route(to, from);
      EXPECT_EQ(there.resources.size(), back.resources.size()) << name << " " << from << " " << to;
      EXPECT_EQ(there.latency, back.latency) << name;
    }
  }
}

// What enters a switch leaves it, so the bytes on links into it and out of it are the same in sum.
TEST(Routes, PartsOfASpreadFlowAddUpAtEverySwitch) {
  const auto cluster = build_cluster("torus-3d", 4096, {{"routing.policy", "adaptive"}}, 0, root_name());
  std::mt19937 random(5);
  for (int draw = 0; draw < 50; ++draw) {
    const int from = static_cast<int>(random() % 4096), to = static_cast<int>(random() % 4096);
    if (from == to) continue;
    const Route route = cluster->route(from, to);
    constexpr std::int64_t kBytes = 1 << 20;
    std::map<std::string, std::int64_t> balance;
    for (std::size_t i = 0; i < route.resources.size(); ++i) {
      const auto [begin, end] = ends_of(cluster->resources()[static_cast<std::size_t>(route.resources[i])].name);
      const std::int64_t bytes = route.carried(i, kBytes);
      EXPECT_LE(bytes, kBytes);
      if (begin.starts_with("router")) balance[begin] -= bytes;
      if (end.starts_with("router")) balance[end] += bytes;
    }
    std::int64_t at_source = 0, at_target = 0, between = 0;
    for (const auto& [name, sum] : balance) {
      if (sum < -kBytes / 2)
        at_source += sum;
      else if (sum > kBytes / 2)
        at_target += sum;
      else
        between = std::max(between, std::abs(sum));
    }
    const auto slack = static_cast<std::int64_t>(route.resources.size());  // rounded up, a byte a link
    EXPECT_NEAR(static_cast<double>(at_source), -kBytes, static_cast<double>(slack));
    EXPECT_NEAR(static_cast<double>(at_target), kBytes, static_cast<double>(slack));
    EXPECT_LE(between, 6) << "at most as many links as a router has";
  }
}

}  // namespace
}  // namespace rehearse::cluster
