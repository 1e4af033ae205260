// Properties of the engine: shares against an exact reference on random systems, bytes conserved, no link over
// capacity, the same bytes on every run and under another numbering of ranks, breakdowns that sum.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "sim/engine/max_min.h"
#include "sim/engine/network.h"
#include "tests/unit/engine/stand_in.h"

namespace rehearse::engine {
namespace {

struct System {
  std::vector<double> capacity, limit;
  std::vector<std::vector<std::pair<std::size_t, double>>> uses;  // of each activity: resource, weight
};

// Progressive filling, one event at a time, in floating point: slow and plain.
std::vector<double> reference_rates(const System& s) {
  std::vector<double> rate(s.limit.size(), -1), left = s.capacity;
  for (std::size_t frozen = 0; frozen < rate.size();) {
    double level = 1e300;
    std::vector<double> weight(left.size(), 0);
    for (std::size_t i = 0; i < rate.size(); ++i)
      if (rate[i] < 0) {
        level = std::min(level, s.limit[i]);
        for (const auto& [r, w] : s.uses[i]) weight[r] += w;
      }
    for (std::size_t r = 0; r < left.size(); ++r)
      if (weight[r] > 0) level = std::min(level, left[r] / weight[r]);
    for (std::size_t i = 0; i < rate.size(); ++i) {
      if (rate[i] >= 0) continue;
      bool stops = s.limit[i] <= level * (1 + 1e-12);
      for (const auto& [r, w] : s.uses[i]) stops = stops || left[r] / weight[r] <= level * (1 + 1e-12);
      if (!stops) continue;
      rate[i] = level;
      ++frozen;
    }
    // Recomputed from the frozen rates, so that errors do not add up.
    left = s.capacity;
    for (std::size_t i = 0; i < rate.size(); ++i)
      if (rate[i] >= 0)
        for (const auto& [r, w] : s.uses[i]) left[r] -= rate[i] * w;
  }
  return rate;
}

TEST(MaxMinProperty, RandomSystemsAgreeWithTheReferenceAndNoResourceIsOverCapacity) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) { return random() % n; };
  for (int round = 0; round < 500; ++round) {
    System reference;
    MaxMin system;
    const std::size_t resources = 1 + below(8), activities = 1 + below(30);
    for (std::size_t r = 0; r < resources; ++r) {
      system.capacity.push_back(1'000'000'000 + below(1'000'000'000));
      reference.capacity.push_back(static_cast<double>(system.capacity.back()));
    }
    for (std::size_t i = 0; i < activities; ++i) {
      system.add_activity(1'000'000 + below(2'000'000'000));
      reference.limit.push_back(static_cast<double>(system.limit.back()));
      reference.uses.emplace_back();
      for (std::size_t r = 0; r < resources; ++r) {
        if (below(3) != 0) continue;
        const auto weight = static_cast<std::int32_t>(1 + below(kWeightOne));
        system.add_use(static_cast<std::int32_t>(r), weight);
        reference.uses.back().push_back({r, static_cast<double>(weight) / kWeightOne});
      }
      system.end_activity();
    }
    system.solve();
    const std::vector<double> expected = reference_rates(reference);
    std::vector<double> load(resources, 0);
    for (std::size_t i = 0; i < activities; ++i) {
      const auto rate = static_cast<double>(system.rate[i]);
      EXPECT_NEAR(rate, expected[i], 100 + 1e-6 * expected[i]) << "round " << round << ", activity " << i;
      for (const auto& [r, w] : reference.uses[i]) load[r] += rate * w;
    }
    for (std::size_t r = 0; r < resources; ++r) EXPECT_LE(load[r], reference.capacity[r] * (1 + 1e-12));
  }
}

constexpr std::int64_t kCapacity = 100'000'000'000;
constexpr int kLinks = 6;

struct Flow {
  std::int64_t begin = 0, alone = 0, bytes = 0;
  std::vector<collective::Use> uses;
};

// Flows that start at random times on random links; weights on the links are 1, 1/2 or 1/4.
std::vector<Flow> random_flows(std::mt19937& random, std::size_t count) {
  std::vector<Flow> flows(count);
  std::int64_t now = 0;
  for (Flow& flow : flows) {
    flow.begin = now;
    flow.bytes = 4 * (1000 + static_cast<std::int64_t>(random() % 250'000));
    flow.alone = transfer_time(Bytes(flow.bytes), Bandwidth(kCapacity)).ps();
    flow.uses.push_back({static_cast<cluster::ResourceId>(random() % kLinks), flow.bytes});
    for (int link = 0; link < kLinks; ++link)
      if (link != flow.uses[0].resource && random() % 4 == 0) flow.uses.push_back({link, flow.bytes >> (random() % 3)});
    now += static_cast<std::int64_t>(random() % 6'000'000);
  }
  return flows;
}

// Ends by the plain method: at every start and end all flows in flight are solved anew, in floating point.
std::vector<double> reference_ends(const std::vector<Flow>& flows) {
  std::vector<double> end(flows.size(), -1), left;
  for (const Flow& flow : flows) left.push_back(static_cast<double>(flow.bytes));
  double now = 0;
  std::size_t started = 0;
  for (std::size_t done = 0; done < flows.size();) {
    while (started < flows.size() && static_cast<double>(flows[started].begin) <= now) ++started;
    System system;
    system.capacity.assign(kLinks, static_cast<double>(kCapacity));
    std::vector<std::size_t> active;
    for (std::size_t i = 0; i < started; ++i) {
      if (end[i] >= 0) continue;
      active.push_back(i);
      system.limit.push_back(static_cast<double>(flows[i].bytes) * 1e12 / static_cast<double>(flows[i].alone));
      system.uses.emplace_back();
      for (const auto& use : flows[i].uses)
        system.uses.back().push_back({static_cast<std::size_t>(use.resource),
                                      static_cast<double>(use.bytes) / static_cast<double>(flows[i].bytes)});
    }
    const std::vector<double> rate = reference_rates(system);
    double next = started < flows.size() ? static_cast<double>(flows[started].begin) : 1e300;
    for (std::size_t k = 0; k < active.size(); ++k) next = std::min(next, now + left[active[k]] / rate[k] * 1e12);
    for (std::size_t k = 0; k < active.size(); ++k) {
      const std::size_t i = active[k];
      left[i] -= rate[k] * (next - now) * 1e-12;
      if (left[i] > 1e-3) continue;
      end[i] = next;
      ++done;
    }
    now = next;
  }
  return end;
}

// At every instant each link is within its capacity (but for the rounding of each flow's rate to 2^-32), no flow ends
// before its own time, and all end when the plain method says.
TEST(NetworkProperty, RandomFlowsEndWhenThePlainMethodSaysAndNoLinkIsOverCapacity) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const std::vector<Flow> flows = random_flows(random, 60);
    const testing::TestCluster cluster(1, std::vector<std::int64_t>(kLinks, kCapacity));
    EventQueue queue;
    std::vector<Event> events;
    Network network(cluster, queue, 0);
    std::vector<std::int64_t> end(flows.size(), -1);
    std::size_t next = 0;
    while (next < flows.size() || !queue.empty()) {
      const Time begin = next < flows.size() ? Time::from_ps(flows[next].begin) : Time::max();
      const Time now = std::min(queue.next_time(), begin);
      while (queue.next_time() == now) {
        queue.take(events);
        for (const Event& event : events)
          if (network.current(event.target, event.version))
            end[static_cast<std::size_t>(network.finish(event.target))] = now.ps();
      }
      for (; next < flows.size() && Time::from_ps(flows[next].begin) == now; ++next)
        network.start(network.define({flows[next].uses, Time::from_ps(flows[next].alone)}),
                      static_cast<std::int32_t>(next), now);
      network.settle(now);
      for (int link = 0; link < kLinks; ++link) EXPECT_LE(network.flow(link), kCapacity + 60 * 30);
    }
    EXPECT_GT(network.solves(), 0);
    const std::vector<double> expected = reference_ends(flows);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      EXPECT_GE(end[i], flows[i].begin + flows[i].alone) << "flow " << i;
      EXPECT_NEAR(static_cast<double>(end[i]), expected[i], 1000) << "round " << round << ", flow " << i;
    }
  }
}

testing::StandIn small_step() {
  testing::StandIn size;
  size.tensor = 2, size.data = 3, size.stages = 2, size.layers = 2, size.micro_batches = 5;
  return size;
}

std::vector<std::int64_t> numbers(const Outcome& o) {
  std::vector<std::int64_t> all = {o.step_time.ps(), o.ops, o.events};
  for (const Time end : o.step_ends) all.push_back(end.ps());
  all.insert(all.end(), o.breakdown_ps.begin(), o.breakdown_ps.end());
  return all;
}

TEST(EngineProperty, RunsRepeatToTheLastPicosecond) {
  const testing::StandIn size = small_step();
  Options options;
  options.steps = 3;
  options.recorded_ranks = {0, 5, 11};
  std::vector<Outcome> runs;
  for (int i = 0; i < 2; ++i)
    runs.push_back(simulate(size.program(), size.grid(), size.cluster(), size.model(), size.costs(), options));
  EXPECT_EQ(numbers(runs[0]), numbers(runs[1]));
  EXPECT_EQ(runs[0].busy_s, runs[1].busy_s);
  ASSERT_EQ(runs[0].records.size(), runs[1].records.size());
  for (std::size_t i = 0; i < runs[0].records.size(); ++i) {
    EXPECT_EQ(runs[0].records[i].start_ps, runs[1].records[i].start_ps);
    EXPECT_EQ(runs[0].records[i].duration_ps, runs[1].records[i].duration_ps);
  }
}

// Every device has the same ports, so which rank runs where makes no difference.
TEST(EngineProperty, AnotherNumberingOfRanksGivesTheSameStep) {
  const testing::StandIn size = small_step();
  testing::TestModel model = size.model();
  // Groups by size instead of by where their members are: 2 over NVLink, 3 over NICs.
  model.groups = [inside = model.groups](const std::vector<int>& members, std::int64_t bytes) {
    namespace s = testing::stand_in;
    return members.size() == 2 ? s::ring(members, bytes, s::nvlink_out, s::nvlink_in, s::kNvlink)
                               : s::ring(members, bytes, s::nic_out, s::nic_in, s::kNic);
  };
  const std::array<int, 5> sizes = {2, 1, 1, 3, 2};
  const plan::RankGrid one(sizes, {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline});
  const plan::RankGrid two(sizes, {Axis::pipeline, Axis::data, Axis::tensor, Axis::context, Axis::expert});
  Options options;
  options.fold = false;  // which counts events
  const Outcome a = simulate(size.program(), one, size.cluster(), model, size.costs(), options);
  const Outcome b = simulate(size.program(), two, size.cluster(), model, size.costs(), options);
  EXPECT_EQ(numbers(a), numbers(b));
}

TEST(EngineProperty, RecordingChangesNothing) {
  const testing::StandIn size = small_step();
  Options options, recording;
  for (int rank = 0; rank < 12; ++rank) recording.recorded_ranks.push_back(rank);
  const Outcome a = simulate(size.program(), size.grid(), size.cluster(), size.model(), size.costs(), options);
  const Outcome b = simulate(size.program(), size.grid(), size.cluster(), size.model(), size.costs(), recording);
  EXPECT_EQ(numbers(a), numbers(b));
  EXPECT_DOUBLE_EQ(a.busy_s, b.busy_s);
  EXPECT_EQ(static_cast<std::int64_t>(b.records.size()) * options.steps, b.ops);
}

// With and without launches, on shared cores and not: the shares sum to the step (the engine also checks every rank).
TEST(EngineProperty, TheBreakdownSumsToTheStep) {
  const testing::StandIn size = small_step();
  for (const std::int64_t launch_us : {0, 5, 400})
    for (const int cores : {0, 3})
      for (const int steps : {1, 2}) {
        testing::TestCluster cluster = size.cluster();
        cluster.sharing = {cores, 1};
        Options options;
        options.launch_cost = Time::from_us(launch_us);
        options.steps = steps;
        const Outcome o = simulate(size.program(), size.grid(), cluster, size.model(), size.costs(), options);
        EXPECT_EQ(std::accumulate(o.breakdown_ps.begin(), o.breakdown_ps.end(), std::int64_t{0}), o.step_time.ps());
        for (const std::int64_t share : o.breakdown_ps) EXPECT_GE(share, 0);
      }
}

// Kernels of one rank on one stream never overlap, and a rank's recorded compute time is within the step.
TEST(EngineProperty, AStreamsOpsDoNotOverlap) {
  const testing::StandIn size = small_step();
  const program::Program program = size.program();
  Options options;
  options.recorded_ranks = {0, 11};
  const Outcome o = simulate(program, size.grid(), size.cluster(), size.model(), size.costs(), options);
  std::map<std::pair<int, int>, std::int64_t> ends;  // rank, stream
  for (const result::OpRecord& r : o.records) {
    const program::Role& role = program.roles[r.rank < 6 ? 0 : 1];
    const int stream = role.bodies[static_cast<std::size_t>(r.body)].ops[static_cast<std::size_t>(r.op)].stream;
    std::int64_t& end = ends[{r.rank, stream}];
    EXPECT_GE(r.start_ps, end);
    end = r.start_ps + r.duration_ps;
  }
  EXPECT_EQ(ends.size(), 2u * 5u) << "all streams of both ranks have ops";
}

}  // namespace
}  // namespace rehearse::engine
