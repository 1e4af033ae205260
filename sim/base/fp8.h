// The two 8-bit floating-point types as bit patterns, and scales of eight bits. e4m3: four bits of exponent (bias 7),
// three of mantissa; no infinity, one NaN of each sign (S.1111.111), at most 448. e5m2: five (bias 15) and two, as IEEE
// 754 would have it, with infinities and NaNs, at most 57344. (Micikevicius et al. 2022, arXiv 2209.05433.) e8m0: an
// exponent alone (bias 127), 255 is NaN (OCP Microscaling Formats 1.0, 2023).
//
// Rounding is to nearest, ties to even. What is too large, infinities with it, becomes the largest finite number: casts
// of training saturate. A NaN stays one. Branch-free, so that compilers vectorise loops over arrays.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/base/dtype.h"

namespace rehearse {

constexpr float largest_of(DType fp8) {
  return fp8 == DType::e5m2 ? 57344.0F : 448.0F;
}

// An 8-bit format with that many bits of mantissa.
template <int kMantissa, int kBias>
struct Fp8Bits {
  static constexpr int kShift = 23 - kMantissa;  // from fp32's mantissa
  static constexpr bool kInfinities = kMantissa == 2;
  static constexpr float kLargest = kInfinities ? 57344.0F : 448.0F;
  static constexpr std::uint8_t kNan = 0x7F;

  static constexpr float widen(std::uint8_t x) {
    const std::uint32_t sign = (x & 0x80U) << 24, magnitude = x & 0x7FU;
    // Exponent and mantissa land too low by the difference of the biases; a product mends it, subnormals included.
    const float scaled = std::bit_cast<float>(magnitude << kShift) *
                         std::bit_cast<float>(static_cast<std::uint32_t>(127 + 127 - kBias) << 23);
    std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
    if (kInfinities ? magnitude >= 0x7CU : magnitude == 0x7FU)
      bits = kInfinities && magnitude == 0x7CU ? 0x7F800000U : 0x7FC00000U;
    return std::bit_cast<float>(sign | bits);
  }

  static constexpr std::uint8_t narrow(float value) {
    const auto x = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = x >> 24 & 0x80U, magnitude = x & 0x7FFFFFFFU;
    constexpr auto kMost = std::bit_cast<std::uint32_t>(kLargest);
    const std::uint32_t held = magnitude < kMost ? magnitude : kMost;
    // A number as large as this has its last bit where the smallest of ours is: the addition rounds to it.
    constexpr auto kAligned = static_cast<std::uint32_t>(127 + 23 + 1 - kBias - kMantissa) << 23;
    const auto tiny =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(held) + std::bit_cast<float>(kAligned)) - kAligned;
    constexpr auto kOffset = static_cast<std::uint32_t>(127 - kBias) << 23;
    const std::uint32_t normal = (held - kOffset + ((1U << (kShift - 1)) - 1) + (held >> kShift & 1U)) >> kShift;
    constexpr auto kNormal = static_cast<std::uint32_t>(127 + 1 - kBias) << 23;  // the smallest normal number
    const std::uint32_t code = magnitude > 0x7F800000U ? kNan : held < kNormal ? tiny : normal;
    return static_cast<std::uint8_t>(sign | code);
  }
};
using E4m3 = Fp8Bits<3, 7>;
using E5m2 = Fp8Bits<2, 15>;

constexpr float float_of_e8m0(std::uint8_t x) {
  return x == 255 ? std::bit_cast<float>(0x7FC00000U)
         : x == 0 ? 0x1p-127F
                  : std::bit_cast<float>(static_cast<std::uint32_t>(x) << 23);
}
// The least power of two that is not below `value`, which is not negative: what is divided by it stays within.
constexpr std::uint8_t e8m0_not_below(float value) {
  const auto x = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = x >> 23, mantissa = x & 0x7FFFFFU;
  if (exponent == 255) return mantissa != 0 ? 255 : 254;
  const bool above = exponent == 0 ? mantissa > 0x400000U : mantissa > 0;  // 2^-127 is a subnormal fp32
  return static_cast<std::uint8_t>(above && exponent < 254 ? exponent + 1 : exponent);
}

}  // namespace rehearse
