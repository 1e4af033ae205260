// The mean over ranks; see breakdown.h.
#include "sim/engine/breakdown.h"

#include <numeric>

#include "sim/base/check.h"

namespace rehearse::engine {

std::array<std::int64_t, result::kShares> Breakdown::mean(std::size_t ranks, std::int64_t window) const {
  std::array<Int128, result::kShares> sums{};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto& own = shares_[rank];
    const std::int64_t total = std::accumulate(own.begin(), own.end(), std::int64_t{0});
    REHEARSE_CHECK(total == window, "rank {}: the breakdown sums to {} ps of {}", rank, total, window);
    for (std::size_t share = 0; share < own.size(); ++share) sums[share] += own[share];
  }
  std::array<std::int64_t, result::kShares> mean{};
  std::int64_t left = window;
  for (std::size_t share = 0; share < mean.size(); ++share) {
    mean[share] = static_cast<std::int64_t>(sums[share] / static_cast<std::int64_t>(ranks));
    left -= mean[share];
  }
  *std::max_element(mean.begin(), mean.end()) += left;
  return mean;
}

}  // namespace rehearse::engine
