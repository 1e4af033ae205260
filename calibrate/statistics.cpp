#include "calibrate/statistics.h"

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::calibrate {

double mean(const std::vector<double>& samples) {
  REHEARSE_CHECK(!samples.empty(), "mean of no samples");
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

Summary summarize(const std::vector<double>& samples) {
  REHEARSE_CHECK(!samples.empty(), "a summary of no samples");
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  return {quantile_of_sorted(sorted, 0.1), quantile_of_sorted(sorted, 0.5), quantile_of_sorted(sorted, 0.9),
          mean(sorted), static_cast<std::int64_t>(sorted.size())};
}

}  // namespace rehearse::calibrate
