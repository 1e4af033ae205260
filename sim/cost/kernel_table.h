// Measured kernels of any kind, by (kind, element type): an exact entry for the same FLOPs and bytes, else log-log
// interpolation of the time over the size (FLOPs where the kind has some, bytes otherwise). Beyond the ends time grows
// in proportion to size above a fixed part.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/device_file.h"

namespace rehearse::cost {

class KernelTable {
 public:
  struct Answer {
    double seconds = 0;
    Coverage coverage = Coverage::exact;
  };
  KernelTable(const std::vector<KernelPoint>& points, Time fixed);
  std::optional<Answer> find(std::string_view kind, program::DType dtype, double flops, double bytes) const;

 private:
  using Key = std::pair<std::string, program::DType>;
  std::map<Key, std::vector<KernelPoint>> by_kind_;  // ordered by size
  double fixed_;
};

}  // namespace rehearse::cost
