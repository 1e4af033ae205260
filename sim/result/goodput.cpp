// See goodput.h.
#include "sim/result/goodput.h"

#include <algorithm>
#include <numeric>

#include "sim/base/quantile.h"

namespace rehearse::result {

double Weeks::seconds() const {
  return std::accumulate(shares.begin(), shares.end(), 0.0);
}

double Weeks::effective_ratio() const {
  return shares[static_cast<std::size_t>(WeekShare::effective)] / seconds();
}

std::int64_t Weeks::interruptions() const {
  return std::accumulate(failures.begin(), failures.end(), std::int64_t{0});
}

WeekQuantiles week_quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {quantile_of_sorted(values, 0.05), quantile_of_sorted(values, 0.5), quantile_of_sorted(values, 0.95)};
}

double Goodput::cost_of(const Weeks& weeks) const {
  const double devices = static_cast<double>(gpus) / static_cast<double>(hosts);
  const double paid = static_cast<double>(gpus) + devices * static_cast<double>(std::max<std::int64_t>(0, spare_hosts));
  return weeks.seconds() / 3600 * paid * price_per_gpu_hour;
}

}  // namespace rehearse::result
