// The angles of rotated positions (RoPE: Su et al. 2021, arXiv 2104.09864). Pair i of a head's `columns` columns turns
// by frequency(i, columns) radians from one position to the next: base^(-2 i / columns), changed where a model was
// lengthened from `trained` positions to `factor` times as many:
//
//   linear  all frequencies are divided by factor (Chen et al. 2023, arXiv 2306.15595)
//   llama3  those that turn less than `low` times in the trained positions are, those that turn more than `high` times
//           stay, between them it is interpolated by the number of turns (Llama 3.1; transformers'
//           _compute_llama3_parameters, Megatron-LM's --use-rope-scaling)
//   yarn    the same, interpolated by the pair's number, between the pairs that turn 32 times and once; and what is
//           rotated is multiplied by magnitude() = 0.1 ln(factor) + 1 (Peng et al. 2023, arXiv 2309.00071, with whole
//           pairs as transformers' _compute_yarn_parameters has them)
#pragma once

#include <compare>
#include <cstdint>

namespace rehearse {

enum class RotationScaling : unsigned char { none, linear, llama3, yarn };

struct Rotation {
  double base = 10000;
  RotationScaling scaling = RotationScaling::none;
  double factor = 8;
  double low = 1, high = 4;     // llama3
  std::int64_t trained = 8192;  // llama3, yarn

  double frequency(std::int64_t pair, std::int64_t columns) const;
  double magnitude() const;
  auto operator<=>(const Rotation&) const = default;
};

}  // namespace rehearse
