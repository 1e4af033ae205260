// See algorithm_trial.h.
#include "kernels/cuda/algorithm_trial.h"

#include <algorithm>

namespace rehearse::kernels::cuda {

std::size_t fastest_algorithm(std::span<const double> seconds) {
  if (seconds.empty() || seconds.front() <= 0) return 0;
  std::size_t best = 0;
  for (std::size_t i = 1; i < seconds.size(); ++i)
    if (seconds[i] > 0 && seconds[i] < seconds[best]) best = i;
  const double gain = seconds.front() - seconds[best];
  return gain > kTieSeconds && gain > kTieShare * seconds.front() ? best : 0;
}

std::optional<AlgorithmTrial::Turn> AlgorithmTrial::next() const {
  constexpr int kInTurn = 2;
  if (runs_.size() < 2) return {};
  for (int round = kInTurn; round <= kRuns; round += kInTurn)
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i] < round) return Turn{i, runs_[i] > 0};
  return {};
}

void AlgorithmTrial::add(const Turn& turn, double seconds) {
  ++runs_[turn.algorithm];
  if (!turn.timed) return;
  double& least = seconds_[turn.algorithm];
  least = least > 0 ? std::min(least, seconds) : seconds;
}

}  // namespace rehearse::kernels::cuda
