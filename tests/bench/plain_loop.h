// What the speeds are compared with: a plain loop that everyone has a feeling for, measured in the same process, so
// that a ratio says the same on a slow, a fast and a busy machine.
//
// One turn of the loop is a pop and a push of a std::priority_queue of a million 64-bit keys (8 MB) in the hold model:
// the least key is taken out and put back a random way later, as an event queue's. It is bound by what a simulation is
// bound by: unpredictable branches and a cache that the data do not fit in.
//
// Usage: PlainLoop plain(state);  for (auto _ : state) ...;  plain.finish(units);  where `units` are the operations of
// one iteration. The counters: plain_loop_ns, a turn's time, the mean of a measurement before the benchmark's loop and
// one after it; relative_to_plain_loop, the time of a unit over that of a turn. Both are CPU time of the process, which
// leaves out what others run on the same core, but not what they take of caches and memory.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

namespace rehearse::bench {

class PlainLoop {
 public:
  explicit PlainLoop(benchmark::State& state);
  void finish(double units);

 private:
  benchmark::State& state_;
  double turn_before_s_ = 0, began_s_ = 0;
};

}  // namespace rehearse::bench
