// Flows in flight: ends are exact where the shares are.
#include "sim/engine/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

constexpr std::int64_t kCapacity = 1'000'000'000'000;  // bytes/s: one byte a picosecond

class NetworkTest : public ::testing::Test {
 protected:
  // A flow of `bytes` over the resources, alone one byte a picosecond.
  void start(std::int64_t bytes, std::vector<cluster::ResourceId> resources, std::int32_t owner, std::int64_t now) {
    std::vector<collective::Use> uses;
    for (const auto resource : resources) uses.push_back({resource, bytes});
    network.start(network.define({uses, Time::from_ps(bytes)}), owner, Time::from_ps(now));
  }
  // Runs the queue to `until`; ends_ has the end of each owner's flow.
  void run(Time until = Time::from_ps(INT64_MAX - 1)) {
    while (queue.next_time() <= until) {
      const Time now = queue.next_time();
      while (queue.next_time() == now) {
        queue.take(events);
        for (const Event& event : events)
          if (network.current(event.target, event.version)) ends[network.finish(event.target)] = now.ps();
      }
      network.settle(now);
    }
  }

  testing::TestCluster machine{1, {kCapacity, kCapacity, kCapacity}};
  EventQueue queue;
  std::vector<Event> events;
  Network network{machine, queue, 0};
  std::map<std::int32_t, std::int64_t> ends;
};

TEST_F(NetworkTest, AFlowAloneTakesItsOwnTime) {
  start(1000, {0, 1}, 1, 50);
  network.settle(Time::from_ps(50));
  run();
  EXPECT_EQ(ends[1], 1050);
  EXPECT_EQ(network.solves(), 0);
}

TEST_F(NetworkTest, TwoFlowsOnOneLinkTakeTwiceAsLong) {
  start(1000, {0}, 1, 0);
  start(1000, {0}, 2, 0);
  network.settle(Time());
  EXPECT_EQ(network.flow(0), kCapacity);
  run();
  EXPECT_EQ(ends[1], 2000);
  EXPECT_EQ(ends[2], 2000);
}

// The first moves 400 bytes alone, then both have half: its 600 left take 1200, by when the second has 400 left alone.
TEST_F(NetworkTest, AStaggeredStartSharesOnlyTheOverlap) {
  start(1000, {0}, 1, 0);
  network.settle(Time());
  run(Time::from_ps(399));
  start(1000, {0}, 2, 400);
  network.settle(Time::from_ps(400));
  run();
  EXPECT_EQ(ends[1], 1600);
  EXPECT_EQ(ends[2], 2000);
}

TEST_F(NetworkTest, FlowsOnDifferentLinksDoNotMeetTheSolver) {
  start(1000, {0}, 1, 0);
  start(2000, {1}, 2, 0);
  network.settle(Time());
  run();
  EXPECT_EQ(ends[1], 1000);
  EXPECT_EQ(ends[2], 2000);
  EXPECT_EQ(network.solves(), 0);
}

// Two activities that each need half a link's capacity fit beside one another.
TEST_F(NetworkTest, ALoadWithinCapacityIsNotShared) {
  for (const std::int32_t owner : {1, 2})
    network.start(network.define({{{0, 500}}, Time::from_ps(1000)}), owner, Time());
  network.settle(Time());
  run();
  EXPECT_EQ(ends[1], 1000);
  EXPECT_EQ(ends[2], 1000);
  EXPECT_EQ(network.solves(), 0);
}

// a: links 0 and 1; b: link 0; c: link 1. a and b have half of link 0, c half of link 1. All end at 2000 (a leaves
// both).
TEST_F(NetworkTest, AFlowOverTwoSharedLinksIsSolvedAsOneComponent) {
  start(1000, {0, 1}, 1, 0);
  start(1000, {0}, 2, 0);
  start(1000, {1}, 3, 0);
  network.settle(Time());
  EXPECT_EQ(network.solves(), 1);
  run();
  EXPECT_EQ(ends[1], 2000);
  EXPECT_EQ(ends[2], 2000);
  EXPECT_EQ(ends[3], 2000);
}

// A ring that puts half as much on the shared link as on its own: fair is equal progress in bytes of the largest use,
// so the ring's rate x and the flow's x load the link 1.5 x: x = 2/3. The ring (largest use 900) ends at 1350; by then
// the flow has moved 900 of 1000 and the rest goes at full rate. x is not an integer: within 2 ps.
TEST_F(NetworkTest, WeightsCountBytesOnTheResourceAgainstTheLargestUse) {
  network.start(network.define({{{0, 450}, {1, 900}}, Time::from_ps(900)}), 1, Time());
  start(1000, {0}, 2, 0);
  network.settle(Time());
  run();
  EXPECT_NEAR(static_cast<double>(ends[1]), 1350, 2);
  EXPECT_NEAR(static_cast<double>(ends[2]), 1450, 2);
}

TEST_F(NetworkTest, AnActivityWithoutUsesTakesItsTime) {
  network.start(network.define({{}, Time::from_ps(700)}), 1, Time());
  network.settle(Time());
  run();
  EXPECT_EQ(ends[1], 700);
}

// The network without what makes it fast: at every start and end the shares of all flows are solved together.
class PlainNetwork {
 public:
  struct Flow {
    std::int64_t start, bytes;
    std::vector<cluster::ResourceId> resources;
    Int128 left = 0;
    std::uint64_t rate = 0;
    std::int64_t end = 0;
    bool done = false;
  };
  PlainNetwork(std::vector<std::int64_t> capacities, std::vector<Flow> flows)
      : capacities_(std::move(capacities)), flows_(std::move(flows)) {}

  std::vector<std::int64_t> ends() {
    for (Flow& flow : flows_) flow.left = static_cast<Int128>(flow.bytes) << 32;
    for (std::int64_t now = 0;;) {
      for (Flow& flow : flows_) flow.done = flow.done || (flow.rate > 0 && flow.end == now);
      share(now);
      std::int64_t next = INT64_MAX;
      for (const Flow& flow : flows_)
        if (!flow.done) next = std::min(next, flow.start > now ? flow.start : flow.end);
      if (next == INT64_MAX) break;
      for (Flow& flow : flows_)
        if (!flow.done && flow.start <= now) flow.left -= static_cast<Int128>(flow.rate) * (next - now);
      now = next;
    }
    std::vector<std::int64_t> ends;
    for (const Flow& flow : flows_) ends.push_back(flow.end);
    return ends;
  }

 private:
  // A flow that keeps its rate keeps its end, which was rounded up once.
  void share(std::int64_t now) {
    MaxMin system;
    system.capacity = capacities_;
    std::vector<Flow*> moving;
    for (Flow& flow : flows_) {
      if (flow.done || flow.start > now) continue;
      moving.push_back(&flow);
      system.add_activity(kCapacity);
      for (const cluster::ResourceId resource : flow.resources) system.add_use(resource, kWeightOne);
      system.end_activity();
    }
    system.solve();
    for (std::size_t i = 0; i < moving.size(); ++i) {
      const auto rate = static_cast<std::uint64_t>((static_cast<UInt128>(system.rate[i]) << 32) / kCapacity);
      if (rate == moving[i]->rate) continue;
      moving[i]->rate = rate;
      const Int128 left = std::max<Int128>(moving[i]->left, 0);
      moving[i]->end = now + static_cast<std::int64_t>((left + rate - 1) / rate);
    }
  }

  std::vector<std::int64_t> capacities_;
  std::vector<Flow> flows_;
};

TEST(Network, EndsAsOneThatSolvesAllFlowsAtEveryInstant) {
  std::mt19937 random(11);
  const auto below = [&random](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  std::int64_t shared = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::int64_t> capacities;
    for (std::int64_t r = 3 + below(12); r > 0; --r) capacities.push_back(kCapacity * (1 + below(3)) / (1 + below(2)));
    std::vector<PlainNetwork::Flow> flows;
    for (std::int64_t f = 5 + below(60); f > 0; --f) {
      PlainNetwork::Flow flow{below(4) * 700, 1000 * (1 + below(5)) + below(2) * below(900), {}};
      for (auto r = static_cast<cluster::ResourceId>(below(4)); r < static_cast<std::int64_t>(capacities.size());
           r += static_cast<cluster::ResourceId>(2 + below(6)))
        flow.resources.push_back(r);
      flows.push_back(flow);
    }
    const testing::TestCluster machine(1, capacities);
    EventQueue queue;
    Network network(machine, queue, 0);
    constexpr std::uint32_t kStart = 1u << 31;
    for (std::size_t f = 0; f < flows.size(); ++f)
      queue.push(Time::from_ps(flows[f].start), kStart | static_cast<std::uint32_t>(f), 0);
    std::vector<std::int64_t> ends(flows.size());
    std::vector<Event> events;
    while (!queue.empty()) {
      const Time now = queue.next_time();
      while (queue.next_time() == now) {
        queue.take(events);
        for (const Event& event : events) {
          if ((event.target & kStart) != 0) {
            const auto f = static_cast<std::int32_t>(event.target & ~kStart);
            const PlainNetwork::Flow& flow = flows[static_cast<std::size_t>(f)];
            std::vector<collective::Use> uses;
            for (const auto resource : flow.resources) uses.push_back({resource, flow.bytes});
            network.start(network.define({uses, Time::from_ps(flow.bytes)}), f, now);
          } else if (network.current(event.target, event.version)) {
            ends[static_cast<std::size_t>(network.finish(event.target))] = now.ps();
          }
        }
      }
      network.settle(now);
    }
    ASSERT_EQ(ends, PlainNetwork(capacities, flows).ends()) << "round " << round;
    shared += network.solves();
  }
  EXPECT_GT(shared, 1000);
}

}  // namespace
}  // namespace rehearse::engine
