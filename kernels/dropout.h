// Which elements a dropout keeps. The one definition that every device and every kernel (fused, flash, unfused)
// follows, so that masks depend on what an element is (DropoutSite::key, sequence of the global batch, position,
// column) and never on how the model is split. A Philox draw gives four words; they are the four columns of a group, so
// a row of n columns costs n / 4 draws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/device.h"
#include "sim/base/random.h"

namespace rehearse::kernels {

// An element is kept if its word is at least this: dropped with `probability` to within 2^-32.
inline std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(std::min(std::round(probability * 0x1p32), 0x1p32 - 1));
}

// Counter of the draw that decides columns [4 * group, 4 * group + 4) is {position * 2^32 + group, sequence}: distinct
// for positions and groups below 2^32.
inline std::uint64_t dropout_counter(std::int64_t position, std::int64_t group) {
  return (static_cast<std::uint64_t>(position) << 32) + static_cast<std::uint64_t>(group);
}

// The column of an attention probability: injective in (head of the whole layer, key position).
inline std::int64_t attention_column(std::int64_t head, std::int64_t seq, std::int64_t key_position) {
  return head * seq + key_position;
}

// `sequence` of the global batch, `position` in it; `column` of the whole width (attention: attention_column).
inline bool dropout_keep(const DropoutSite& site, std::int64_t sequence, std::int64_t position, std::int64_t column) {
  const auto words =
      Philox::draw(site.key, dropout_counter(position, column / 4), static_cast<std::uint64_t>(sequence));
  return words[static_cast<std::size_t>(column % 4)] >= dropout_threshold(site.probability);
}

}  // namespace rehearse::kernels
