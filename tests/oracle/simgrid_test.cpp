// SimGrid as the oracle of our shares: completion times of the same flows over the same links, one by one, to 1e-6.
// Its flow model CM02 with latencies of zero and every correction fitted to TCP off (latency, bandwidth and weight
// factors, window bound, cross traffic) is plain max-min fairness, as ours is. Each set has links of its own and all
// run in the one engine a process may have.
// Reference: Casanova et al. 2014, "Versatile, scalable, and accurate simulation of distributed applications"; the
// options are those of SimGrid 3.32's manual, "Configuring SimGrid".
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <simgrid/s4u.hpp>
#include <vector>

#include "sim/cluster/machines.h"
#include "sim/engine/network.h"
#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

struct Flow {
  std::vector<cluster::ResourceId> links;
  std::int64_t bytes = 0, start_ps = 0;
};
struct FlowSet {
  const char* name;
  std::vector<std::int64_t> capacities;  // bytes/s
  std::vector<Flow> flows;
};
using Ends = std::vector<double>;  // seconds, by flow

// Flows over routes of a cluster, sizes over three decades; `stagger_ps`: the span of their starts.
FlowSet over_routes(const char* name, const cluster::Cluster& cluster, int flows, std::int64_t stagger_ps,
                    std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  FlowSet set{name, {}, {}};
  for (const cluster::Resource& r : cluster.resources()) set.capacities.push_back(r.capacity.per_s());
  for (int i = 0; i < flows; ++i) {
    const auto from = static_cast<int>(below(cluster.devices()));
    const auto to = static_cast<int>((from + 1 + below(cluster.devices() - 1)) % cluster.devices());
    const std::int64_t bytes = std::int64_t{100'000'000} << below(8);
    set.flows.push_back(
        {cluster.route(from, to).resources, bytes + below(1000), stagger_ps > 0 ? below(stagger_ps) : 0});
  }
  return set;
}

// Flows over 1 to 5 links each drawn from all.
FlowSet over_random_links(const char* name, int links, int flows, std::int64_t stagger_ps, std::uint32_t seed) {
  std::mt19937 random(seed);
  FlowSet set{name, {}, {}};
  for (int l = 0; l < links; ++l)
    set.capacities.push_back(1'000'000'000 + static_cast<std::int64_t>(random() % 50'000'000) * 1000);
  for (int i = 0; i < flows; ++i) {
    Flow flow;
    const std::size_t crossed = 1 + random() % 5;
    while (flow.links.size() < crossed) {
      const auto link = static_cast<cluster::ResourceId>(random() % static_cast<std::uint32_t>(links));
      if (std::find(flow.links.begin(), flow.links.end(), link) == flow.links.end()) flow.links.push_back(link);
    }
    std::sort(flow.links.begin(), flow.links.end());
    flow.bytes = 50'000'000 + static_cast<std::int64_t>(random() % 4'000'000) * 1000;
    flow.start_ps = stagger_ps > 0 ? static_cast<std::int64_t>(random()) % stagger_ps * 1000 % stagger_ps : 0;
    set.flows.push_back(std::move(flow));
  }
  return set;
}

cluster::FatTreeNumbers fat_tree(double oversubscription) {
  cluster::FatTreeNumbers n;
  n.name = "tree";
  n.nvlink = Bandwidth(300'000'000'000), n.nic = Bandwidth(25'000'000'000);
  n.nodes_per_unit = 4, n.units = 4, n.oversubscription = oversubscription;
  return n;
}

std::vector<FlowSet> flow_sets() {
  constexpr std::int64_t second = kPicosecondsPerSecond;
  const cluster::FatTree tree(fat_tree(1), 128), narrow(fat_tree(4), 128);
  return {over_routes("fat tree, all at once", tree, 400, 0, 1),
          over_routes("fat tree, staggered", tree, 400, second / 10, 2),
          over_routes("fat tree of a quarter of the uplinks, staggered", narrow, 400, second / 4, 3),
          over_random_links("40 links, all at once", 40, 300, 0, 4),
          over_random_links("40 links, staggered", 40, 300, 2 * second, 5),
          over_random_links("600 links, mostly disjoint", 600, 200, second / 4, 6)};
}

std::vector<Ends> by_simgrid(const std::vector<FlowSet>& sets) {
  int argc = 1;
  char program[] = "oracle";
  char* argv[] = {program, nullptr};
  simgrid::s4u::Engine engine(&argc, argv);
  for (const char* option :
       {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/latency-factor:1",
        "network/bandwidth-factor:1", "network/weight-S:0", "surf/precision:1e-12", "maxmin/precision:1e-12"})
    simgrid::s4u::Engine::set_config(std::string(option));
  auto* zone = simgrid::s4u::create_full_zone("zone");
  std::vector<Ends> ends;
  for (const FlowSet& set : sets) ends.emplace_back(set.flows.size(), 0);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    std::vector<simgrid::s4u::Link*> links;
    for (std::size_t l = 0; l < sets[s].capacities.size(); ++l)
      links.push_back(zone->create_link(fmt::format("s{}l{}", s, l), static_cast<double>(sets[s].capacities[l]))
                          ->set_latency(0)
                          ->seal());
    for (std::size_t f = 0; f < sets[s].flows.size(); ++f) {
      const Flow& flow = sets[s].flows[f];
      auto* from = zone->create_host(fmt::format("s{}f{}from", s, f), 1e9)->seal();
      auto* to = zone->create_host(fmt::format("s{}f{}to", s, f), 1e9)->seal();
      std::vector<simgrid::s4u::LinkInRoute> way;
      for (const cluster::ResourceId link : flow.links) way.emplace_back(links[static_cast<std::size_t>(link)]);
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, way, false);
      double* end = &ends[s][f];
      simgrid::s4u::Actor::create("flow", from, [from, to, end, flow] {
        simgrid::s4u::this_actor::sleep_until(static_cast<double>(flow.start_ps) * 1e-12);
        simgrid::s4u::Comm::sendto(from, to, static_cast<std::uint64_t>(flow.bytes));
        *end = simgrid::s4u::Engine::get_clock();
      });
    }
  }
  zone->seal();
  engine.run();
  return ends;
}

Ends by_us(const FlowSet& set) {
  const testing::TestCluster cluster(2, set.capacities);
  EventQueue queue;
  Network network(cluster, queue, 0);
  constexpr std::uint32_t kStart = 1u << 30;
  Ends ends(set.flows.size(), 0);
  std::vector<std::int32_t> defined;
  for (std::size_t f = 0; f < set.flows.size(); ++f) {
    const Flow& flow = set.flows[f];
    collective::Activity activity;
    std::int64_t slowest = INT64_MAX;
    for (const cluster::ResourceId link : flow.links) {
      activity.uses.push_back({link, flow.bytes});
      slowest = std::min(slowest, set.capacities[static_cast<std::size_t>(link)]);
    }
    activity.min_duration = transfer_time(Bytes(flow.bytes), Bandwidth(slowest));
    defined.push_back(network.define(activity));
    queue.push(flow.start_ps, kStart | static_cast<std::uint32_t>(f), 0);
  }
  std::vector<Event> events;
  while (!queue.empty()) {
    const std::int64_t now = queue.next_time();
    while (queue.next_time() == now) {
      queue.take(events);
      for (const Event& event : events) {
        if ((event.target & kStart) != 0) {
          const auto f = static_cast<std::int32_t>(event.target & ~kStart);
          network.start(defined[static_cast<std::size_t>(f)], f, now);
        } else if (network.current(event.target, event.version)) {
          ends[static_cast<std::size_t>(network.finish(event.target))] = static_cast<double>(now) * 1e-12;
        }
      }
    }
    network.settle(now);
  }
  return ends;
}

TEST(SimGrid, FlowsEndWhenTheOracleSays) {
  const std::vector<FlowSet> sets = flow_sets();
  const std::vector<Ends> oracle = by_simgrid(sets);
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const Ends ours = by_us(sets[s]);
    double worst = 0;
    for (std::size_t f = 0; f < ours.size(); ++f) {
      const double start = static_cast<double>(sets[s].flows[f].start_ps) * 1e-12;
      ASSERT_GT(oracle[s][f], start) << sets[s].name;
      worst = std::max(worst, std::abs((ours[f] - start) / (oracle[s][f] - start) - 1));
    }
    EXPECT_LT(worst, 1e-6) << sets[s].name;
    std::printf("%s: %zu flows, largest relative difference %.1e\n", sets[s].name, ours.size(), worst);
  }
}

}  // namespace
}  // namespace rehearse::engine
