// See plain_loop.h.
#include "plain_loop.h"

#include <functional>
#include <queue>
#include <vector>

#include "workloads.h"

namespace rehearse::bench {
namespace {

constexpr int kKeys = 1'000'000, kTurns = 500'000;
constexpr std::uint64_t kSpan = 1'000'000'000;  // keys are spread over it, and put back at most so much later

// splitmix64 (Steele, Lea, Flood 2014): a few instructions, so that the loop is the queue's.
std::uint64_t random_number(std::uint64_t& state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

struct Queue {
  std::uint64_t random = 1;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> keys;
  Queue() {
    for (int i = 0; i < kKeys; ++i) keys.push(random_number(random) % kSpan);
  }
  void turn() {
    const std::uint64_t least = keys.top();
    keys.pop();
    keys.push(least + random_number(random) % kSpan);
  }
};

// Seconds of a turn.
double time_a_turn() {
  static Queue queue;
  for (int i = 0; i < kTurns / 10; ++i) queue.turn();  // back into the cache, as far as it goes there
  const double began = cpu_seconds();
  for (int i = 0; i < kTurns; ++i) queue.turn();
  const double seconds = (cpu_seconds() - began) / kTurns;
  benchmark::DoNotOptimize(queue.keys.top());
  return seconds;
}

}  // namespace

PlainLoop::PlainLoop(benchmark::State& state) : state_(state), turn_before_s_(time_a_turn()), began_s_(cpu_seconds()) {}

void PlainLoop::finish(double units) {
  const double took = cpu_seconds() - began_s_;
  const double turn = (turn_before_s_ + time_a_turn()) / 2;
  state_.counters["plain_loop_ns"] = turn * 1e9;
  state_.counters["relative_to_plain_loop"] = took / (static_cast<double>(state_.iterations()) * units * turn);
}

}  // namespace rehearse::bench
