// See quantile.h.
#include "sim/base/quantile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "sim/base/check.h"

namespace rehearse {
namespace {

double place_of(const std::vector<double>& sorted, double share) {
  REHEARSE_CHECK(!sorted.empty() && share >= 0 && share <= 1, "quantile {} of {} samples", share, sorted.size());
  return share * static_cast<double>(sorted.size() - 1);
}

}  // namespace

double quantile_of_sorted(const std::vector<double>& sorted, double share) {
  const double place = place_of(sorted, share);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  return quantile_of_sorted(samples, share);
}

double median(std::vector<double> samples) {
  return quantile(std::move(samples), 0.5);
}

double at_rank(const std::vector<double>& sorted, double share, Rank rank) {
  const double place = place_of(sorted, share);
  return sorted[static_cast<std::size_t>(rank == Rank::below ? place : std::round(place))];
}

}  // namespace rehearse
