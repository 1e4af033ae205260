#include "calibrate/gpu/timing.h"

#include <algorithm>

#include "calibrate/statistics.h"

namespace rehearse::calibrate::gpu {
namespace {

int launches_for(double seconds, double once, int most) {
  return std::clamp(static_cast<int>(std::min(seconds / std::max(once, 1e-8), 1e6)), 1, most);
}

}  // namespace

Samples time_burst(Run& run, const Protocol& protocol, const std::function<double()>& now, double deadline) {
  const double began = now();
  double once = run.launch(1);
  for (int i = 1; i < protocol.warm_up_runs && now() - began < protocol.warm_up_s && now() < deadline; ++i)
    once = std::min(once, run.launch(1));
  const int launches = launches_for(protocol.graph_s, once, protocol.most_launches);
  run.launch(launches);  // records the graph
  Samples samples;
  double kernel_time = 0;
  do {
    const double seconds = run.launch(launches);
    samples.seconds.push_back(seconds / launches);
    kernel_time += seconds;
    samples.complete =
        kernel_time >= protocol.kernel_s && samples.seconds.size() >= static_cast<std::size_t>(protocol.repetitions);
  } while (!samples.complete && now() < deadline);
  while (!samples.complete && samples.seconds.size() < static_cast<std::size_t>(protocol.fewest) && once < 0.01)
    samples.seconds.push_back(run.launch(launches) / launches);
  return samples;
}

std::vector<double> time_sustained(const std::vector<Run*>& runs, double seconds, const std::function<double()>& now) {
  constexpr double kTurn = 0.01;
  std::vector<int> launches;
  for (Run* run : runs) launches.push_back(launches_for(kTurn, run->launch(1), 1000));
  std::vector<std::vector<double>> samples(runs.size());
  const double began = now();
  while (!runs.empty() && now() - began < seconds) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const double taken = runs[i]->launch(launches[i]) / launches[i];
      if (now() - began > seconds / 2) samples[i].push_back(taken);
    }
  }
  std::vector<double> medians;
  for (auto& list : samples) medians.push_back(list.empty() ? 0 : median(std::move(list)));
  return medians;
}

}  // namespace rehearse::calibrate::gpu
