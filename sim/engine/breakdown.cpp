// The mean over ranks; see breakdown.h.
#include "sim/engine/breakdown.h"

#include <numeric>

#include "sim/base/check.h"
#include "sim/engine/wide.h"

namespace rehearse::engine {

std::array<std::int64_t, result::kShares> Breakdown::mean(const std::vector<std::int64_t>& alike, Time window) const {
  std::array<Int128, result::kShares> sums{};
  Int128 ranks = 0;
  for (const RankId rank : IdRange<RankId>{RankId(0), RankId(alike.size())}) {
    const std::int64_t count = alike[rank.index()];
    ranks += count;
    const auto& own = shares_[rank];
    const Time total = std::accumulate(own.begin(), own.end(), Time());
    REHEARSE_CHECK(total == window, "rank {}: the breakdown sums to {} ps of {}", rank.value(), total.ps(),
                   window.ps());
    for (std::size_t share = 0; share < own.size(); ++share)
      sums[share] += static_cast<Int128>(own[share].ps()) * count;
  }
  std::array<std::int64_t, result::kShares> mean{};
  std::int64_t left = window.ps();
  for (std::size_t share = 0; share < mean.size(); ++share) {
    mean[share] = static_cast<std::int64_t>(sums[share] / ranks);
    left -= mean[share];
  }
  *std::max_element(mean.begin(), mean.end()) += left;
  return mean;
}

}  // namespace rehearse::engine
