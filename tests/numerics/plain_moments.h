// Moments of a plain model as 8-bit optimizers store them (Dettmers et al. 2021, arXiv 2110.02861): each block of
// elements of a tensor as multiples of its largest absolute value, from a list of 256; in double. It shares nothing
// with sim/base/moment_codes.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace rehearse::numerics {

inline std::vector<double> dynamic_values(bool has_sign) {
  std::vector<double> all = {0, 1};
  double top = 1e-6;
  for (int pieces = has_sign ? 1 : 2; all.size() < 256; pieces *= 2, top *= 10)
    for (int k = 0; k < pieces; ++k) {
      all.push_back(top * (0.1 + 0.9 * (k + 0.5) / pieces));
      if (has_sign) all.push_back(-all.back());
    }
  std::sort(all.begin(), all.end());
  return all;
}

// Every element becomes what is read back of it.
template <typename Real>
void store_in_8_bits(std::vector<Real>& moment, bool has_sign, std::size_t block) {
  static const std::vector<double> with_sign = dynamic_values(true), without = dynamic_values(false);
  const std::vector<double>& list = has_sign ? with_sign : without;
  for (std::size_t first = 0; first < moment.size(); first += block) {
    const std::size_t end = std::min(first + block, moment.size());
    double most = 0;
    for (std::size_t i = first; i < end; ++i) most = std::max(most, std::abs(static_cast<double>(moment[i])));
    if (most == 0) continue;
    for (std::size_t i = first; i < end; ++i) {
      const double share = static_cast<double>(moment[i]) / most;
      const auto above = std::lower_bound(list.begin(), list.end(), share);  // share is at most 1, which is in the list
      double best = *above;
      if (above != list.begin() && share - above[-1] <= best - share) best = above[-1];
      if (share < 0 && best == 0) best = above[-1];
      moment[i] = static_cast<Real>(best * most);
    }
  }
}

// bitsandbytes keeps tensors of fewer than 4,096 elements in fp32, and embeddings if it is asked to.
inline bool stored_in_8_bits(const std::string& name, std::size_t elements) {
  return elements >= 4096 && !name.starts_with("embedding.");
}

}  // namespace rehearse::numerics
