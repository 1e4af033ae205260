// The two 16-bit floating-point types as bit patterns: bf16 (the upper half of an fp32) and f16 (IEEE 754 binary16).
// Rounding is to nearest, ties to even; overflow gives infinity, a NaN stays one. Portable and branch-free, so that
// compilers vectorise loops over arrays: the f16 conversions let the processor's own fp32 arithmetic round, as F.
// Giesen describes ("Float->half variants", 2012).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "sim/base/dtype.h"

namespace rehearse {

constexpr bool is_half(DType t) {
  return t == DType::bf16 || t == DType::f16;
}

constexpr float float_of_bf16(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}
constexpr std::uint16_t bf16_of_float(float value) {
  const auto x = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (x + 0x7FFF + (x >> 16 & 1)) >> 16, quiet = x >> 16 | 0x40;
  return static_cast<std::uint16_t>((x & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

// Exponent and mantissa land 112 below the bias of fp32; a product with 2^112 mends it, subnormals included.
constexpr float float_of_f16(std::uint16_t x) {
  const std::uint32_t magnitude = (x & 0x7FFFU) << 13, sign = (x & 0x8000U) << 16;
  const auto scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t special = magnitude | 0x7F800000;  // infinity, NaN
  return std::bit_cast<float>(sign | ((x & 0x7C00U) == 0x7C00U ? special : scaled));
}
constexpr std::uint16_t f16_of_float(float value) {
  const auto x = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = x >> 16 & 0x8000U, magnitude = x & 0x7FFFFFFFU;
  // Below 2^-14, adding 0.5 leaves the f16 mantissa in the low bits, rounded by the addition.
  const auto tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  std::uint32_t h = magnitude < 0x38800000U ? tiny : normal;
  h = magnitude >= 0x477FF000U ? 0x7C00U : h;  // from 65520 on
  h = magnitude > 0x7F800000U ? 0x7E00U : h;
  return static_cast<std::uint16_t>(sign | h);
}

// y[i] = x[i] for i in [0, n); `type` is f32, bf16 or f16.
inline void to_float(DType type, const void* x, std::int64_t n, float* y) {
  const auto* half = static_cast<const std::uint16_t*>(x);
  if (type == DType::bf16) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = float_of_bf16(half[i]);
  } else if (type == DType::f16) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = float_of_f16(half[i]);
  } else if (n > 0) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
  }
}
inline void from_float(DType type, const float* x, std::int64_t n, void* y) {
  auto* half = static_cast<std::uint16_t*>(y);
  if (type == DType::bf16) {
    for (std::int64_t i = 0; i < n; ++i) half[i] = bf16_of_float(x[i]);
  } else if (type == DType::f16) {
    for (std::int64_t i = 0; i < n; ++i) half[i] = f16_of_float(x[i]);
  } else if (n > 0) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
  }
}

}  // namespace rehearse
