// How long a kernel takes: the protocol of GPU benchmarks, on anything that can be launched. A warm-up, then graphs of
// as many launches as take about two milliseconds, until there are enough of them and enough kernel time, or the time
// allowed is over. Bursts and long runs differ by what the clock does under load: a long run launches all its kernels
// in turn for ten seconds and counts the second half.
#pragma once

#include <functional>
#include <vector>

#include "calibrate/gpu/bench.h"

namespace rehearse::calibrate::gpu {

struct Protocol {
  double warm_up_s = 0.025;
  int warm_up_runs = 10;  // whichever is reached first
  double graph_s = 0.002;
  int most_launches = 200;  // of a graph
  double kernel_s = 0.1;
  int repetitions = 20;
  int fewest = 3;  // where the time allowed is short
};

struct Samples {
  std::vector<double> seconds;  // a kernel, one of each graph
  bool complete = false;        // kernel time and repetitions as the protocol has them
};

// `deadline` of now(); at least one sample in any case.
Samples time_burst(Run& run, const Protocol& protocol, const std::function<double()>& now, double deadline);

// Medians, one a run; zeros where nothing was counted.
std::vector<double> time_sustained(const std::vector<Run*>& runs, double seconds, const std::function<double()>& now);

}  // namespace rehearse::calibrate::gpu
