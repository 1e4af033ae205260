// The engine's network against SimGrid's: both share links max-min fairly, so flows end at the same time, to 1e-6 of
// it. Ours counts in integers, SimGrid in doubles; neither shares a line with the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "sim/cluster/topology.h"
#include "sim/engine/network.h"
#include "simgrid_flows.h"
#include "tests/unit/engine/machine.h"

namespace rehearse::oracle {
namespace {

using Links = std::vector<std::int64_t>;  // bytes/s

// When each flow ends, in picoseconds, by the engine's network. A flow alone runs at its slowest link's rate.
std::vector<std::int64_t> our_ends(const Links& links, const std::vector<Flow>& flows, std::vector<Change> changes) {
  const engine::testing::TestCluster cluster(1, links);
  engine::EventQueue queue;
  engine::Network network(cluster, queue, 0);
  std::vector<std::size_t> order(flows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return flows[a].start_ps < flows[b].start_ps; });
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at_ps < b.at_ps; });
  std::vector<std::int64_t> ends(flows.size(), -1);
  std::vector<engine::Event> events;
  auto next = order.begin();
  auto change = changes.begin();
  while (true) {
    const Time begin = next == order.end() ? Time::max() : Time::from_ps(flows[*next].start_ps);
    const Time changed = change == changes.end() ? Time::max() : Time::from_ps(change->at_ps);
    const Time now = std::min({begin, changed, queue.next_time()});
    if (now == Time::max()) break;
    while (queue.next_time() == now) {
      queue.take(events);
      for (const engine::Event& event : events)
        if (network.current(event.target, event.version))
          ends[static_cast<std::size_t>(network.finish(event.target))] = now.ps();
    }
    for (; next != order.end() && flows[*next].start_ps == now.ps(); ++next) {
      const Flow& flow = flows[*next];
      std::vector<collective::Use> uses;
      std::int64_t slowest = flow.links.empty() ? 1 : links[static_cast<std::size_t>(flow.links.front())];
      for (const std::int32_t l : flow.links) {
        uses.push_back({l, flow.bytes});
        slowest = std::min(slowest, links[static_cast<std::size_t>(l)]);
      }
      std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.resource < b.resource; });
      const auto alone = Time::from_seconds(static_cast<double>(flow.bytes) / static_cast<double>(slowest));
      network.start(network.define({uses, alone}), static_cast<std::int32_t>(*next), now);
    }
    for (; change != changes.end() && change->at_ps == now.ps(); ++change)
      network.set_capacity(change->link, change->bytes_per_s);
    network.settle(now);
  }
  return ends;
}

void expect_same_ends(const Links& links, const std::vector<Flow>& flows, const std::vector<Change>& changes = {}) {
  const std::vector<double> theirs = simgrid_ends(links, flows, changes);
  const std::vector<std::int64_t> ours = our_ends(links, flows, changes);
  double worst = 0;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    ASSERT_GT(ours[f], flows[f].start_ps) << "flow " << f;
    worst = std::max(worst, std::abs(static_cast<double>(ours[f]) * 1e-12 / theirs[f] - 1));
  }
  EXPECT_LT(worst, 1e-6);
}

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  // Flows of 1 to 100 MB that begin within `spread` of one another, each over a few of the links.
  std::vector<Flow> flows(int count, std::int64_t links, int most_links, std::int64_t spread_ps) {
    std::vector<Flow> all;
    for (int f = 0; f < count; ++f) {
      std::set<std::int32_t> over;
      const std::int64_t crossed = between(1, most_links);
      while (static_cast<std::int64_t>(over.size()) < crossed)
        over.insert(static_cast<std::int32_t>(between(0, links - 1)));
      all.push_back({between(0, spread_ps), between(1'000'000, 100'000'000), {over.begin(), over.end()}});
    }
    return all;
  }
  Links links(int count) {
    Links all;
    for (int l = 0; l < count; ++l) all.push_back(between(1, 50) * 1'000'000'000);
    return all;
  }

 private:
  std::mt19937 random_;
};

constexpr std::int64_t kMillisecond = 1'000'000'000;

TEST(SimGrid, FlowsThatShareAFewLinks) {
  Random random(1);
  const Links links = random.links(6);
  expect_same_ends(links, random.flows(300, 6, 3, 0));
}

TEST(SimGrid, FlowsThatBeginOneAfterTheOther) {
  Random random(2);
  const Links links = random.links(20);
  expect_same_ends(links, random.flows(400, 20, 5, 20 * kMillisecond));
}

TEST(SimGrid, FlowsThatHardlyMeet) {
  Random random(3);
  const Links links = random.links(400);
  expect_same_ends(links, random.flows(300, 400, 2, 5 * kMillisecond));
}

TEST(SimGrid, ManySmallSystems) {
  for (unsigned seed = 10; seed < 30; ++seed) {
    Random random(seed);
    const int count = static_cast<int>(random.between(2, 8));
    const Links links = random.links(count);
    expect_same_ends(links, random.flows(static_cast<int>(random.between(2, 30)), count, 2, 2 * kMillisecond));
  }
}

Links capacities_of(const cluster::Cluster& cluster) {
  Links links;
  for (const cluster::Resource& r : cluster.resources()) links.push_back(r.capacity.per_s());
  return links;
}

// Staggered flows between random devices of a cluster, over its routes, spread over four channels.
std::vector<Flow> flows_on(const cluster::Cluster& cluster, unsigned seed) {
  Random random(seed);
  const int devices = cluster.devices();
  std::vector<Flow> flows;
  for (int f = 0; f < 600; ++f) {
    const int from = static_cast<int>(random.between(0, devices - 1));
    const int to = (from + static_cast<int>(random.between(1, devices - 1))) % devices;
    const cluster::Route route = cluster.route(from, to, f % 4);
    flows.push_back({random.between(0, 3) * kMillisecond,
                     random.between(1'000'000, 100'000'000),
                     {route.resources.begin(), route.resources.end()}});
  }
  return flows;
}

// Routes of a shipped cluster: NVLink ports, NICs, leaves and the spine, with and without oversubscription.
TEST(SimGrid, FlowsOverAFatTree) {
  for (const char* oversubscription : {"1", "4"}) {
    const auto cluster = cluster::build_cluster("dgx-h100", 512, {{"fabric.oversubscription", oversubscription}}, 0,
                                                REHEARSE_SOURCE_DIR);
    expect_same_ends(capacities_of(*cluster), flows_on(*cluster, 4));
  }
}

// Three levels, ways chosen by a hash: flows collide. NICs and cables have lost bandwidth, and one NIC sends nothing.
TEST(SimGrid, FlowsThatCollideOnDegradedLinks) {
  const cluster::Overrides overrides = {
      {"routing.policy", "ecmp"},
      {"faults",
       "[{link: 'node3/nic5-*', share: 0.5}, {link: 'unit0/leaf?->*', share: 0.3},"
       " {link: 'node7/nic?-in', bandwidth: 7GB/s}, {link: 'node1/nic0-out', missing: true}]"}};
  const auto cluster = cluster::build_cluster("hgx-h200", 512, overrides, 0, REHEARSE_SOURCE_DIR);
  const std::vector<Flow> flows = flows_on(*cluster, 5);
  std::map<std::int32_t, int> crossed;
  for (const Flow& flow : flows)
    for (const std::int32_t l : flow.links) ++crossed[l];
  int shared_cables = 0, degraded = 0;
  for (const auto& [l, times] : crossed) {
    const cluster::Resource& link = cluster->resources()[static_cast<std::size_t>(l)];
    shared_cables += link.kind == cluster::ResourceKind::link && times > 1 ? 1 : 0;
    degraded += link.nominal.per_s() > link.capacity.per_s() ? 1 : 0;
  }
  EXPECT_GT(shared_cables, 20);
  EXPECT_GT(degraded, 20);
  expect_same_ends(capacities_of(*cluster), flows);
}

// Links that lose half or more of their bandwidth while flows are on them, and get it back: many flows to a link, and
// hardly more than one, which the loss alone slows. All flows have begun before: for good SimGrid bounds a flow's rate
// by what its links carry when it begins.
TEST(SimGrid, LinksThatFlap) {
  for (const int count : {20, 400}) {
    Random random(6);
    const Links links = random.links(count);
    const std::vector<Flow> flows = random.flows(300, count, 4, 0);
    std::vector<Change> changes;
    for (std::int32_t l = 0; l < count; l += 2) {
      const std::int64_t whole = links[static_cast<std::size_t>(l)];
      const std::int64_t down = random.between(1, 4000 / count) * kMillisecond;
      changes.push_back({down, l, whole / random.between(2, 20)});
      changes.push_back({down + random.between(1, 6000 / count) * kMillisecond, l, whole});
    }
    expect_same_ends(links, flows, changes);
  }
}

}  // namespace
}  // namespace rehearse::oracle
