#include "calibrate/statistics.h"

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::calibrate {
namespace {

double at(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double percentile(std::vector<double> samples, double share) {
  REHEARSE_CHECK(!samples.empty() && share >= 0 && share <= 1, "percentile {} of {} samples", share, samples.size());
  std::sort(samples.begin(), samples.end());
  return at(samples, share);
}

double median(std::vector<double> samples) {
  return percentile(std::move(samples), 0.5);
}

double mean(const std::vector<double>& samples) {
  REHEARSE_CHECK(!samples.empty(), "mean of no samples");
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

Summary summarize(const std::vector<double>& samples) {
  REHEARSE_CHECK(!samples.empty(), "a summary of no samples");
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  return {at(sorted, 0.1), at(sorted, 0.5), at(sorted, 0.9), mean(sorted), static_cast<std::int64_t>(sorted.size())};
}

}  // namespace rehearse::calibrate
