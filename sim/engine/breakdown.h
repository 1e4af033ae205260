// Where the compute stream's time goes in the last step. The window is the same for every rank: from the end of the
// step before over all ranks to the end of the last step. Inside it the intervals a rank reports tile the time, so its
// shares sum to the window. What waits are called: sim/account/blame.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/wide.h"
#include "sim/result/result.h"

namespace rehearse::engine {

class Breakdown {
 public:
  explicit Breakdown(std::size_t ranks) : shares_(ranks) {}

  // The step before the last has ended everywhere; intervals reported from now on count from here.
  void open(std::int64_t now) { from_ = now; }
  std::int64_t from() const { return from_; }  // kNever: not open yet
  // [begin, end) of a rank, end <= now.
  void add(std::int32_t rank, result::Share share, std::int64_t begin, std::int64_t end) {
    if (end <= from_) return;
    shares_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(share)] +=
        std::max<std::int64_t>(0, end - std::max(begin, from_));
  }
  // Mean over the first `ranks`, rounded down; the remainder goes to the largest share. Every one must sum to `window`.
  std::array<std::int64_t, result::kShares> mean(std::size_t ranks, std::int64_t window) const;

 private:
  std::int64_t from_ = kNever;
  std::vector<std::array<std::int64_t, result::kShares>> shares_;
};

}  // namespace rehearse::engine
