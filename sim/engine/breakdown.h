// Where the compute stream's time goes in the last step. The window is the same for every rank: from the end of the
// step before over all ranks to the end of the last step. Inside it the intervals a rank reports tile the time, so its
// shares sum to the window. What waits are called: sim/account/blame.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/ids.h"
#include "sim/result/result.h"

namespace rehearse::engine {

class Breakdown {
 public:
  explicit Breakdown(std::size_t ranks) : shares_(ranks) {}

  // The step before the last has ended everywhere; intervals reported from now on count from here.
  void open(Time now) { from_ = now; }
  Time from() const { return from_; }  // Time::max(): not open yet
  // [begin, end) of a rank, end <= now; so many times.
  void add(RankId rank, result::Share share, Time begin, Time end, std::int64_t times = 1) {
    if (end <= from_) return;
    shares_[rank][static_cast<std::size_t>(share)] += std::max(Time(), end - std::max(begin, from_)) * times;
  }
  // Mean over the first ranks in ps, rounded down, rank r counted alike[r] times; the remainder goes to the largest
  // share. Every one must sum to `window`.
  std::array<std::int64_t, result::kShares> mean(const std::vector<std::int64_t>& alike, Time window) const;

 private:
  Time from_ = Time::max();
  IdVector<RankId, std::array<Time, result::kShares>> shares_;
};

}  // namespace rehearse::engine
