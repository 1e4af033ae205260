// Measured times of transfers by size: exact at measured sizes, between them log-log interpolation; below the smallest
// its time (what waking the participants takes), above the largest in proportion to what that one adds to the largest
// of at most half its size.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/collective/collective.h"
#include "sim/cost/calibration_file.h"

namespace rehearse::collective {

class TransferTable {
 public:
  struct Answer {
    double seconds = 0;
    double low = 1, high = 1;
    Coverage coverage = Coverage::exact;
  };
  // A later point of the same size replaces the earlier one.
  void add(std::int64_t bytes, const cost::Quantiles& time) { points_[bytes] = time; }
  bool empty() const { return points_.empty(); }
  Answer at(std::int64_t bytes) const;
  // The smallest time of all: what a transfer costs that moves next to nothing.
  double fixed() const;

 private:
  std::map<std::int64_t, cost::Quantiles> points_;
};

}  // namespace rehearse::collective
