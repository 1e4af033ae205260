// The 4-bit floating-point type e2m1 as bit patterns: a sign, two bits of exponent (bias 1), one of mantissa. Its
// sixteen codes are 0, 0.5, 1, 1.5, 2, 3, 4 and 6 with either sign; there is no infinity and no NaN (OCP Microscaling
// Formats 1.0, 2023, section 5.3.3). What is larger than 6, infinities with it, becomes 6, and so does a NaN, as CUDA's
// conversions have it (cuda_fp4.h, __nv_cvt_float_to_fp4).
#pragma once

#include <cmath>
#include <cstdint>

namespace rehearse {

struct E2m1 {
  static constexpr float kLargest = 6;

  static constexpr float widen(std::uint8_t code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const float magnitude = exponent == 0
                                ? 0.5F * static_cast<float>(mantissa)
                                : (1 + 0.5F * static_cast<float>(mantissa)) * static_cast<float>(1 << (exponent - 1));
    return (code & 8) != 0 ? -magnitude : magnitude;
  }

  // To nearest, ties to even: a comparison for each middle of two neighbours, which goes to the even one.
  static constexpr std::uint8_t narrow(float x) {
    const float m = x < 0 ? -x : x;
    const int size =
        x != x ? 7 : (m > 0.25F) + (m >= 0.75F) + (m > 1.25F) + (m >= 1.75F) + (m > 2.5F) + (m >= 3.5F) + (m > 5.0F);
    return static_cast<std::uint8_t>(size | (x < 0 ? 8 : 0));
  }

  // Up, away from zero, with the share of the way that x has come from the neighbour below: if `chance`, evenly from
  // [0, 1), is below that share.
  static constexpr std::uint8_t narrow_at_random(float x, float chance) {
    const float m = x < 0 ? -x : x;
    if (!(m < kLargest)) return static_cast<std::uint8_t>(7 | (x < 0 ? 8 : 0));
    const int below = (m >= 0.5F) + (m >= 1.0F) + (m >= 1.5F) + (m >= 2.0F) + (m >= 3.0F) + (m >= 4.0F);
    const float low = widen(static_cast<std::uint8_t>(below)), high = widen(static_cast<std::uint8_t>(below + 1));
    const int size = below + (chance * (high - low) < m - low ? 1 : 0);
    return static_cast<std::uint8_t>(size | (x < 0 ? 8 : 0));
  }
};

}  // namespace rehearse
