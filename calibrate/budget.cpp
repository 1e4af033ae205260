#include "calibrate/budget.h"

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::calibrate {

double share_of(const std::vector<double>& weights, std::size_t index, double left) {
  REHEARSE_CHECK(index < weights.size(), "part {} of {}", index, weights.size());
  const double rest = std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(index), weights.end(), 0.0);
  return rest <= 0 ? 0 : std::max(0.0, left) * weights[index] / rest;
}

Budget Budget::part(double seconds) const {
  return Budget(Clock::now(), std::min(seconds, left()), poll_);
}

}  // namespace rehearse::calibrate
