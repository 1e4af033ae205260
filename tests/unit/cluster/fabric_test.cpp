// The generators of fabrics: what they are made of, what crosses their middle, and which ways lead through them.
#include "sim/cluster/fabric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "sim/cluster/cluster.h"
#include "sim/cluster/fabric_routes.h"

namespace rehearse::cluster {
namespace {

constexpr std::int64_t kCable = 10;

FabricNumbers tree(int nodes_per_unit, int units, int spines, int uplinks) {
  FabricNumbers n;
  n.kind = FabricKind::tree;
  n.nodes_per_unit = nodes_per_unit, n.units = units, n.spines = spines, n.uplinks = uplinks;
  n.cable = Bandwidth(kCable);
  n.hop = Time::from_ns(100);
  return n;
}

std::vector<NicPlace> places(int nodes, int nics) {
  std::vector<NicPlace> out;
  for (int n = 0; n < nodes; ++n)
    for (int k = 0; k < nics; ++k) out.push_back({n, k});
  return out;
}

MadeFabric make(const FabricNumbers& n, int nodes, int nics, bool adaptive = false) {
  return make_fabric(n, nodes, nics, places(nodes, nics), adaptive);
}

// Of the links between switches of which one is inside, one outside.
std::int64_t across(const Fabric& fabric, const std::function<bool(const std::string&)>& inside) {
  std::int64_t sum = 0;
  for (const FabricLink& l : fabric.links)
    if (inside(fabric.switches[static_cast<std::size_t>(l.a)]) !=
        inside(fabric.switches[static_cast<std::size_t>(l.b)]))
      sum += l.bandwidth.per_s();
  return sum;
}

TEST(Tree, RailsHaveALeafEachInEveryUnit) {
  const MadeFabric made = make(tree(4, 3, 2, 4), 12, 2);
  EXPECT_EQ(made.fabric.switches.size(), 3U * 2 + 2);
  EXPECT_EQ(made.fabric.links.size(), 3U * 2 * 4) << "four cables up from each leaf";
  EXPECT_EQ(made.leaf_of, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5}));
  EXPECT_EQ(made.fabric.link_name(0), "unit0/leaf0->spine0");
  EXPECT_EQ(made.fabric.link_name(3), "spine0->unit0/leaf0#2");
}

TEST(Tree, BisectionIsThatOfTheUplinksWhateverTheRouting) {
  // Half of the units, full: 2 x 2 leaves of four uplinks.
  const auto half = [](const std::string& name) { return name.starts_with("unit0/") || name.starts_with("unit1/"); };
  for (const bool adaptive : {false, true}) {
    const MadeFabric made = make(tree(4, 4, 2, 4), 16, 2, adaptive);
    EXPECT_EQ(across(made.fabric, half), 2 * 2 * 4 * kCable) << adaptive;
  }
  const MadeFabric over = make(tree(4, 4, 2, 2), 16, 2);
  EXPECT_EQ(across(over.fabric, half), 2 * 2 * 2 * kCable) << "two to one";
}

TEST(Tree, WithoutRailsAUnitHasOneLeaf) {
  FabricNumbers n = tree(4, 3, 8, 8);
  n.rails = false;
  const MadeFabric made = make(n, 12, 2);
  EXPECT_EQ(made.fabric.switches.size(), 3U + 8);
  EXPECT_EQ(std::set<int>(made.leaf_of.begin(), made.leaf_of.begin() + 8).size(), 1U);
}

FabricNumbers three_levels() {
  FabricNumbers n = tree(2, 8, 2, 2);  // 16 nodes, units of 2, 2 uplinks a leaf to 2 spines of its pod
  n.levels = 3;
  n.units_per_pod = 2;
  n.core_uplinks = 2, n.cores = 2;
  return n;
}

TEST(Tree, ThreeLevelsAreAsWideAtTheTopAsAtTheBottom) {
  const MadeFabric made = make(three_levels(), 16, 1);
  // 8 leaves, 4 pods of 2 spines, 2 planes of 2 cores
  EXPECT_EQ(made.fabric.switches.size(), 8U + 8 + 4);
  EXPECT_EQ(made.fabric.links.size(), 8U * 2 + 8 * 2);
  const auto core = [](const std::string& name) { return name.find("core") != std::string::npos; };
  EXPECT_EQ(across(made.fabric, core), 16 * kCable) << "16 nodes of one cable each, no oversubscription";
  EXPECT_EQ(across(make(three_levels(), 16, 1, true).fabric, core), 16 * kCable);
}

TEST(Tree, DistancesAreTwoHopsUpAndDownALevel) {
  const FabricRoutes routes(make(three_levels(), 16, 1).fabric, Routing::fixed, 1);
  EXPECT_EQ(routes.distance(0, 0), 0);
  EXPECT_EQ(routes.distance(0, 1), 2) << "units of one pod meet at its spines";
  EXPECT_EQ(routes.distance(0, 2), 4) << "pods meet at the cores";
}

// D-mod-K: in a full fat tree every shift of all nodes crosses every cable at most once in each direction (Zahavi
// 2012).
void expect_shifts_free_of_contention(const FabricNumbers& n, int nodes) {
  const MadeFabric made = make(n, nodes, 1);
  const FabricRoutes routes(made.fabric, Routing::fixed, 1);
  for (int shift = 1; shift < nodes; ++shift) {
    std::map<int, int> load;
    for (int from = 0; from < nodes; ++from) {
      const int to = (from + shift) % nodes;
      for (const int link : routes
                                .way(made.leaf_of[static_cast<std::size_t>(from)],
                                     made.leaf_of[static_cast<std::size_t>(to)], {from, to, 0, to})
                                .links)
        EXPECT_EQ(++load[link], 1) << made.fabric.link_name(link) << " at shift " << shift;
    }
  }
}

TEST(Routes, FixedOnesAreFreeOfContentionForShifts) {
  expect_shifts_free_of_contention(tree(4, 4, 4, 4), 16);
  expect_shifts_free_of_contention(three_levels(), 16);
}

TEST(Routes, HashedOnesSpreadOverAllCables) {
  // 16 cables to 4 spines: of n flows each gets n/16, with a standard deviation of sqrt(n 15)/16; five of them is rare.
  const MadeFabric made = make(tree(16, 2, 4, 16), 32, 1);
  const FabricRoutes routes(made.fabric, Routing::ecmp, 7);
  std::map<int, int> up, down;
  constexpr int kFlows = 16000;
  for (int f = 0; f < kFlows; ++f) {
    const FabricWay way = routes.way(0, 1, {f / 100, 16 + f % 100, f % 3, 0});
    ASSERT_EQ(way.links.size(), 2U);
    ++up[way.links[0]], ++down[way.links[1]];
  }
  ASSERT_EQ(up.size(), 16U);
  ASSERT_EQ(down.size(), 16U);
  for (const auto& load : {up, down})
    for (const auto& [link, count] : load) EXPECT_NEAR(count, kFlows / 16, 5 * std::sqrt(kFlows * 15.0) / 16) << link;
}

TEST(Routes, AHashIsThatOfSeedEndsAndChannel) {
  const Fabric fabric = make(tree(16, 2, 16, 16), 32, 1).fabric;
  const FabricRoutes one(fabric, Routing::ecmp, 1), same(fabric, Routing::ecmp, 1), other(fabric, Routing::ecmp, 2);
  int seeds = 0, channels = 0, ends = 0;
  for (int f = 0; f < 64; ++f) {
    const Flow flow{f, 16, 0, 0};
    EXPECT_EQ(one.way(0, 1, flow).links, same.way(0, 1, flow).links);
    seeds += one.way(0, 1, flow).links != other.way(0, 1, flow).links;
    channels += one.way(0, 1, flow).links != one.way(0, 1, {f, 16, 1, 0}).links;
    ends += one.way(0, 1, flow).links != one.way(0, 1, {f, 17, 0, 0}).links;
  }
  for (const int changed : {seeds, channels, ends}) EXPECT_GT(changed, 48) << "15 of 16 differ";
}

TEST(Routes, AdaptiveOnesCarryPartsThatAddUp) {
  const FabricRoutes routes(make(tree(4, 4, 4, 4), 16, 1).fabric, Routing::adaptive, 1);
  const FabricWay way = routes.way(0, 1, {0, 4, 0, 0});
  ASSERT_EQ(way.links.size(), 8U) << "four spines, a link up and one down each";
  for (const std::int32_t share : way.shares) EXPECT_EQ(share, Route::kWhole / 4);
  EXPECT_EQ(way.latency, Time::from_ns(200));
}

TEST(Routes, ABrokenCableIsAvoided) {
  for (const Routing routing : {Routing::fixed, Routing::ecmp, Routing::adaptive}) {
    Fabric fabric = make(tree(4, 4, 4, 4), 16, 1).fabric;
    for (int l = 0; l < 3; ++l) fabric.links[static_cast<std::size_t>(l)].missing = true;
    const FabricRoutes routes(fabric, routing, 1);
    for (int to = 4; to < 16; ++to)
      EXPECT_EQ(routes.way(0, to / 4, {0, to, 0, to}).links.front(), 2 * 3) << "the only cable left of leaf 0";
  }
}

FabricNumbers torus(std::vector<int> dims) {
  FabricNumbers n;
  n.kind = FabricKind::torus;
  n.dims = std::move(dims);
  n.link = Bandwidth(kCable);
  n.hop = Time::from_ns(100);
  return n;
}

TEST(Torus, BisectionIsTwoLinksARow) {
  const Fabric fabric = make(torus({4, 4, 8}), 128, 1).fabric;
  EXPECT_EQ(fabric.links.size(), 3U * 128);
  // Cut the long dimension: 16 rows, each crossed twice.
  const auto half = [](const std::string& name) { return name.back() < '4'; };
  EXPECT_EQ(across(fabric, half), 2 * 16 * kCable);
}

TEST(Torus, CoordinatesGiveTheDistancesThatTheGraphGives) {
  for (const bool wraps : {true, false}) {
    FabricNumbers n = torus({5, 2, 4});
    n.wraps = wraps;
    const Fabric fabric = make(n, 40, 1).fabric;
    Fabric plain = fabric;
    plain.torus.clear();
    const FabricRoutes by_coordinates(fabric, Routing::fixed, 1), by_search(plain, Routing::fixed, 1);
    for (int a = 0; a < 40; ++a)
      for (int b = 0; b < 40; ++b) EXPECT_EQ(by_coordinates.distance(a, b), by_search.distance(a, b)) << a << " " << b;
  }
}

TEST(Torus, FixedRoutesGoDimensionByDimensionTheShorterWay) {
  const Fabric fabric = make(torus({8, 8}), 64, 1).fabric;
  const FabricRoutes routes(fabric, Routing::fixed, 1);
  const FabricWay way = routes.way(0, 2 * 8 + 7, {0, 23, 0, 23});  // from 0.0 to 7.2
  std::vector<std::string> names;
  for (const int l : way.links) names.push_back(fabric.link_name(l));
  EXPECT_EQ(names, (std::vector<std::string>{"router0.0->router7.0", "router7.0->router7.1", "router7.1->router7.2"}));
}

TEST(Dragonfly, EveryPairOfGroupsIsJoinedAndNoRouterHasTooManyLinks) {
  FabricNumbers n;
  n.kind = FabricKind::dragonfly;
  n.groups = 9, n.routers = 4, n.nodes_per_router = 2, n.global_links = 2;  // a h + 1 = 9 groups, balanced
  n.link = Bandwidth(kCable), n.global = Bandwidth(kCable);
  const Fabric fabric = make(n, 72, 1).fabric;
  EXPECT_EQ(fabric.links.size(), 9U * 6 + 9 * 8 / 2);
  std::map<std::pair<int, int>, int> pairs;
  std::map<int, int> global;
  for (const FabricLink& l : fabric.links) {
    if (l.a / 4 == l.b / 4) continue;
    ++pairs[std::minmax(l.a / 4, l.b / 4)];
    ++global[l.a], ++global[l.b];
  }
  EXPECT_EQ(pairs.size(), 36U);
  for (const auto& [pair, count] : pairs) EXPECT_EQ(count, 1);
  for (const auto& [router, count] : global) EXPECT_EQ(count, 2) << router;
  const FabricRoutes routes(fabric, Routing::fixed, 1);
  for (int a = 0; a < 36; ++a)
    for (int b = 0; b < 36; ++b) EXPECT_LE(routes.distance(a, b), 3) << "local, global, local";
}

TEST(RailOnly, RailsDoNotMeet) {
  FabricNumbers n;
  n.kind = FabricKind::rail_only;
  n.nodes = 4;
  const MadeFabric made = make(n, 4, 2);
  const FabricRoutes routes(made.fabric, Routing::fixed, 1);
  EXPECT_EQ(made.leaf_of, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(routes.distance(0, 1), -1);
}

}  // namespace
}  // namespace rehearse::cluster
