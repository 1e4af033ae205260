// Attention with linear biases (ALiBi; Press et al. 2021, arXiv 2108.12409, section 3): a score of query i and key j
// gets slope x (j - i), by a slope of its head that is not learned. Of n heads, a power of two, the slopes are 2^(-8 (h
// + 1) / n); of others those of the power of two below, and behind them every second one of the power of two above (the
// authors' fairseq/models/transformer.py, get_slopes; build_alibi_tensor of Hugging Face's modeling_bloom.py).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace rehearse {

inline double alibi_slope(std::int64_t head, std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  return head < power ? std::exp2(-8 * real(head + 1) / real(power))
                      : std::exp2(-4 * real(2 * (head - power) + 1) / real(power));
}

}  // namespace rehearse
