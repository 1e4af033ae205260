#include "sim/collective/transfer_table.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"

namespace rehearse::collective {

TransferTable::Answer TransferTable::at(std::int64_t bytes) const {
  REHEARSE_CHECK(!points_.empty(), "an empty table of transfers was asked");
  const auto above = points_.lower_bound(bytes);
  const auto& nearest = above == points_.end() ? *points_.rbegin() : *above;
  Answer answer;
  answer.seconds = nearest.second.p50;
  answer.low = nearest.second.p10 / nearest.second.p50;
  answer.high = nearest.second.p90 / nearest.second.p50;
  if (nearest.first == bytes) return answer;
  answer.coverage = Coverage::extrapolated;
  const auto size = static_cast<double>(bytes);
  if (above == points_.end()) {
    const auto last = static_cast<double>(nearest.first);
    double per_byte = answer.seconds / last;
    // Two sizes close to each other have a difference that is mostly noise.
    if (auto after = points_.upper_bound(nearest.first / 2); after != points_.begin()) {
      const auto& before = *std::prev(after);
      per_byte = std::max(0.0, (answer.seconds - before.second.p50) / (last - static_cast<double>(before.first)));
    }
    answer.seconds += per_byte * (size - last);
  } else if (above != points_.begin()) {
    const auto& below = *std::prev(above);
    const double share = std::log(size / static_cast<double>(below.first)) /
                         std::log(static_cast<double>(nearest.first) / static_cast<double>(below.first));
    answer.seconds = below.second.p50 * std::pow(answer.seconds / below.second.p50, share);
    answer.coverage = Coverage::interpolated;
  }
  return answer;
}

double TransferTable::fixed() const {
  double least = points_.begin()->second.p50;
  for (const auto& [bytes, time] : points_) least = std::min(least, time.p50);
  return least;
}

}  // namespace rehearse::collective
