// Which elements a dropout keeps. The one definition that every device and every kernel (fused, flash, unfused)
// follows, so that masks depend on what an element is (seed, step, site, sequence of the global batch, position,
// column) and never on how the model is split. A Philox draw gives eight numbers of 16 bits; they are the eight columns
// of a group, so a row of n columns costs n / 8 draws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/device.h"
#include "sim/base/random.h"

namespace rehearse::kernels {

inline constexpr std::int64_t kDropoutGroup = 8;  // columns of one draw

// An element is kept if its number is at least this: dropped with `probability` to within 2^-17 (below 1 - 2^-16).
inline std::uint16_t dropout_threshold(double probability) {
  return static_cast<std::uint16_t>(std::min(std::round(probability * 0x1p16), 0x1p16 - 1));
}

// Counter of the draw that decides columns [8 * group, 8 * group + 8) is {position * 2^32 + group, sequence}: distinct
// for positions and groups below 2^32.
inline std::uint64_t dropout_counter(std::int64_t position, std::int64_t group) {
  return (static_cast<std::uint64_t>(position) << 32) + static_cast<std::uint64_t>(group);
}

// The column of an attention probability: injective in (head of the whole layer, key position).
inline std::int64_t attention_column(std::int64_t head, std::int64_t seq, std::int64_t key_position) {
  return head * seq + key_position;
}

// Of a site whose probability is not 0.
inline std::uint64_t dropout_key(const DropoutSite& site) {
  return mix_key(mix_key(site.seed, static_cast<std::uint64_t>(site.step->step)), site.site);
}
// The sequence, of the global batch since the run began, that is the i-th of the micro-batch.
inline std::int64_t dropout_sequence(const DropoutSite& site, std::int64_t i) {
  return site.step->first_sequence + site.first_sequence + i;
}

// `sequence` of the global batch, `position` in it; `column` of the whole width (attention: attention_column). Columns
// 2 w and 2 w + 1 of a group are the low and the high half of word w.
inline bool dropout_keep(const DropoutSite& site, std::int64_t sequence, std::int64_t position, std::int64_t column) {
  const auto words = Philox::draw(dropout_key(site), dropout_counter(position, column / kDropoutGroup),
                                  static_cast<std::uint64_t>(sequence));
  const std::int64_t in_group = column % kDropoutGroup;
  const auto number = static_cast<std::uint16_t>(words[static_cast<std::size_t>(in_group / 2)] >> (in_group % 2 * 16));
  return number >= dropout_threshold(site.probability);
}

}  // namespace rehearse::kernels
