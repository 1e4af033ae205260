// A call of program::LowRank.
#pragma once

#include <span>
#include <vector>

#include "kernels/device.h"
#include "sim/program/optimizer_ops.h"

namespace rehearse::execute {

// Operands in the order of optimizer_ops.h; all are fp32.
inline void call_low_rank(const program::LowRank& l, kernels::Device& device, std::span<const kernels::Out> reads,
                          std::span<const kernels::Out> writes) {
  using program::LowRankPart;
  auto *const from = static_cast<float*>(reads[0].data), *const to = static_cast<float*>(writes[0].data);
  if (l.part == LowRankPart::orthogonalise) return device.orthogonalise(l.rows, l.rank, l.epsilon, to);
  if (l.part == LowRankPart::keep) {
    std::vector<kernels::Range> rest;
    for (const program::FlatRange& r : l.rest) rest.push_back({r.offset, r.elements});
    return device.keep_rest(l.elements, l.members, rest, from, to);
  }
  const bool pack = l.part == LowRankPart::pack;
  std::int64_t packed = 0;
  for (const program::FlatRange& r : l.rest) {
    device.copy(r.elements, from + (pack ? r.offset : packed), to + (pack ? packed : r.offset));
    packed += r.elements;
  }
}

}  // namespace rehearse::execute
