// Benchmarks of the engine's parts, alone:
//   event_queue      hold model: pop the next event, push one later, at a given number of pending events
//   max_min          progressive filling of random flows over ports, each with a source and a destination port
//   network_pairs    flows over shared ports started and finished one by one, shares solved at each change
//   network_all_to_all   65,280 flows of different sizes between 256 ports out and in, all started at once
//   max_min_growth   the same with 4 flows a port from 1,024 to 65,536 flows; the counter is the time a flow
//   step_ring        fidelity step: a ring all-reduce of 1 GiB, every message a flow, 2 n (n-1) of them, on a fat tree
//                    of 50 GB/s with 16 hosts a leaf (W1 flat: 1,024 ranks, 2,095,104 messages)
//   step_all_to_all  256 ranks, 65,280 flows at once of 4 MiB over a fat tree with 16 spines, routed by destination
//                    (W3); with fewer ranks also `mixed`: sizes differ, so that flows end at as many instants, and the
//                    rest are solved again at each
//   flow_ring        fidelity flow: plan and move a ring all-reduce of 1 GiB on n ranks, 8 a node
//   stand_in_step    a program of the size of a GPT-3 175B step (tests/unit/engine/stand_in.h), two steps
// The counter relative_to_plain_loop is the time of a flow (max_min_growth), a message (step_ring) or a flow moved
// (step_all_to_all) over that of a turn of a plain priority queue, measured beside it (plain_loop.h).
#include <benchmark/benchmark.h>

#include <random>

#include "plain_loop.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/max_min.h"
#include "sim/engine/network.h"
#include "tests/unit/engine/stand_in.h"
#include "workloads.h"

namespace rehearse::engine {
namespace {

void event_queue(benchmark::State& state) {
  std::mt19937_64 random(1);
  EventQueue queue;
  const auto pending = static_cast<std::uint32_t>(state.range(0));
  for (std::uint32_t i = 0; i < pending; ++i)
    queue.push(Time::from_ps(static_cast<std::int64_t>(random() % 1'000'000)), i, 0);
  std::vector<Event> events;
  std::int64_t done = 0;
  for (auto _ : state) {
    const Time now = queue.next_time();
    queue.take(events);
    for (const Event& event : events)
      queue.push(now + Time::from_ps(static_cast<std::int64_t>(random() % 1'000'000)), event.target, event.version + 1);
    done += static_cast<std::int64_t>(events.size());
  }
  state.SetItemsProcessed(done);
}
BENCHMARK(event_queue)->Arg(1 << 10)->Arg(1 << 13)->Arg(1 << 16);

void max_min(benchmark::State& state) {
  const auto ports = static_cast<std::int32_t>(state.range(0)), flows = static_cast<std::int32_t>(state.range(1));
  std::mt19937 random(1);
  MaxMin system;
  system.capacity.assign(static_cast<std::size_t>(ports) * 2, 25'000'000'000);
  for (std::int32_t i = 0; i < flows; ++i) {
    system.add_activity(25'000'000'000);
    system.add_use(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(ports)), kWeightOne);
    system.add_use(ports + static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(ports)), kWeightOne);
    system.end_activity();
  }
  for (auto _ : state) {
    system.solve();
    benchmark::DoNotOptimize(system.rate.data());
  }
  state.SetItemsProcessed(state.iterations() * flows);
}
BENCHMARK(max_min)->Args({8, 32})->Args({256, 1024})->Args({256, 65280});

void network_pairs(benchmark::State& state) {
  const int ports = 64;
  const testing::TestCluster cluster(ports, std::vector<std::int64_t>(ports, 25'000'000'000));
  std::mt19937 random(1);
  for (auto _ : state) {
    EventQueue queue;
    std::vector<Event> events;
    Network network(cluster, queue, 0);
    Time now;
    for (int i = 0; i < 1000; ++i) {
      const auto from = static_cast<cluster::ResourceId>(random() % 32);
      const auto to = static_cast<cluster::ResourceId>(32 + random() % 32);
      network.start(network.define({{{from, 1'000'000}, {to, 1'000'000}}, Time::from_us(40)}), i, now);
      network.settle(now);
      now += Time::from_us(1);
      while (queue.next_time() <= now) {
        const Time time = queue.next_time();
        queue.take(events);
        for (const Event& event : events)
          if (network.current(event.target, event.version)) network.finish(event.target);
        network.settle(time);
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(network_pairs);

void network_all_to_all(benchmark::State& state) {
  constexpr int ranks = 256;
  constexpr std::int64_t capacity = 25'000'000'000;
  const testing::TestCluster cluster(ranks, std::vector<std::int64_t>(2 * ranks, capacity));
  std::int64_t solves = 0;
  for (auto _ : state) {
    EventQueue queue;
    std::vector<Event> events;
    Network network(cluster, queue, 0);
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        const std::int64_t bytes = 100'000 * (1 + (from + to) % 4);
        network.start(
            network.define({{{from, bytes}, {ranks + to, bytes}}, transfer_time(Bytes(bytes), Bandwidth(capacity))}),
            from, Time());
      }
    network.settle(Time());
    while (!queue.empty()) {
      const Time now = queue.next_time();
      while (queue.next_time() == now) {
        queue.take(events);
        for (const Event& event : events)
          if (network.current(event.target, event.version)) network.finish(event.target);
      }
      network.settle(now);
    }
    solves = network.solves();
  }
  state.counters["solves"] = static_cast<double>(solves);
}
BENCHMARK(network_all_to_all)->Unit(benchmark::kMillisecond);

void max_min_growth(benchmark::State& state) {
  const auto flows = static_cast<std::int32_t>(state.range(0)), ports = flows / 4;
  std::mt19937 random(1);
  const auto port = [&] { return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(ports)); };
  MaxMin system;
  for (std::int32_t p = 0; p < 2 * ports; ++p) system.capacity.push_back(20'000'000'000 + port() * 1'000'000);
  for (std::int32_t i = 0; i < flows; ++i) {
    system.add_activity(25'000'000'000);
    system.add_use(port(), kWeightOne);
    system.add_use(ports + port(), kWeightOne);
    system.end_activity();
  }
  bench::PlainLoop plain(state);
  for (auto _ : state) system.solve();
  plain.finish(flows);
  state.SetItemsProcessed(state.iterations() * flows);
  state.SetComplexityN(flows);
}
BENCHMARK(max_min_growth)
    ->RangeMultiplier(4)
    ->Range(1 << 10, 1 << 16)
    ->Unit(benchmark::kMicrosecond)
    ->Complexity(benchmark::oNLogN);

void step_ring(benchmark::State& state) {
  StepsAlone alone;
  bench::PlainLoop plain(state);
  for (auto _ : state) alone = bench::ring_of_messages(static_cast<int>(state.range(0)));
  plain.finish(static_cast<double>(alone.messages));
  state.counters["messages"] = static_cast<double>(alone.messages);
  state.counters["simulated_ms"] = alone.time.seconds() * 1e3;
  state.SetItemsProcessed(state.iterations() * alone.messages);
}
BENCHMARK(step_ring)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

void step_all_to_all(benchmark::State& state) {
  StepsAlone alone;
  bench::PlainLoop plain(state);
  for (auto _ : state) alone = bench::all_to_all_of_messages(static_cast<int>(state.range(0)), state.range(1) != 0);
  plain.finish(static_cast<double>(alone.messages));
  state.counters["flows"] = static_cast<double>(alone.messages);
  state.counters["solves"] = static_cast<double>(alone.solves);
  state.counters["simulated_ms"] = alone.time.seconds() * 1e3;
}
BENCHMARK(step_all_to_all)
    ->ArgNames({"ranks", "mixed"})
    ->Args({256, 0})
    ->Args({16, 1})
    ->Args({32, 1})
    ->Args({64, 1})
    ->Args({128, 1})
    ->Unit(benchmark::kMillisecond);

void flow_ring(benchmark::State& state) {
  Time end;
  for (auto _ : state) end = bench::ring_of_flows(static_cast<int>(state.range(0)));
  state.counters["simulated_ms"] = end.seconds() * 1e3;
}
BENCHMARK(flow_ring)->Arg(256)->Arg(1024)->Arg(4096)->Unit(benchmark::kMillisecond);

void stand_in_step(benchmark::State& state) {
  testing::StandIn size;
  const program::Program program = size.program();
  const testing::TestModel model = size.model();
  const testing::TestCosts costs = size.costs();
  const testing::TestCluster cluster = size.cluster();
  Options options;
  Outcome outcome;
  for (auto _ : state) outcome = simulate(program, size.grid(), cluster, model, costs, options);
  state.counters["ops"] = static_cast<double>(outcome.ops);
  state.counters["events"] = static_cast<double>(outcome.events);
  state.counters["step_s"] = outcome.step_time.seconds();
  state.SetItemsProcessed(state.iterations() * outcome.ops);
}
BENCHMARK(stand_in_step)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rehearse::engine
