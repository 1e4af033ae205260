#include "sim/plan/nearest_numbers.h"

#include <fmt/format.h>

#include <algorithm>

namespace rehearse::plan {

std::string nearest_multiples(std::int64_t value, std::int64_t step) {
  const std::int64_t below = value / step * step;
  return below == 0 ? fmt::format("{}", step) : fmt::format("{} or {}", below, below + step);
}

std::string nearest_divisors(std::int64_t whole, std::int64_t value, std::int64_t most) {
  std::int64_t below = 1, above = 0;
  for (std::int64_t d = 1; d <= std::min(whole, most); ++d) {
    if (whole % d != 0) continue;
    if (d <= value) {
      below = d;
    } else {
      above = d;
      break;
    }
  }
  return above == 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

}  // namespace rehearse::plan
