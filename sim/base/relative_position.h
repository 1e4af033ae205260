// Buckets of distances between a query and a key, of which T5 has a bias of the scores each, learned by head (Raffel et
// al. 2020, arXiv 1910.10683, section 2.1; google-research/mesh transformer_layers.py, _relative_position_bucket):
// distances up to half of a direction's buckets have one each, larger ones share buckets that grow with the logarithm
// of the distance up to `farthest`, and what is beyond has the last. With both directions each has half of the buckets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rehearse {

// Of the key that stands `distance` tokens behind the query; with one direction those behind have bucket 0.
inline std::int64_t relative_position_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t farthest,
                                             bool both_directions) {
  std::int64_t first = 0, away = std::max<std::int64_t>(0, -distance);
  if (both_directions) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    away = std::abs(distance);
  }
  const std::int64_t exact = buckets / 2;
  if (away < exact) return first + away;
  const float share = std::log(static_cast<float>(away) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(farthest) / static_cast<double>(exact)));
  const auto behind = static_cast<std::int64_t>(share * static_cast<float>(buckets - exact));
  return first + std::min(buckets - 1, exact + behind);
}

}  // namespace rehearse
