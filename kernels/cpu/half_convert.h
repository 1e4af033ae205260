// Conversions of arrays between fp32 and the 16-bit types (sim/base/half.h), with the processor's F16C for f16.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "sim/base/half.h"

namespace rehearse::kernels::cpu {

inline void widen(DType type, const void* x, std::int64_t n, float* __restrict y) {
  std::int64_t i = 0;
  const auto* half = static_cast<const std::uint16_t*>(x);
  if (type == DType::f16)
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + i))));
  to_float(type, static_cast<const std::byte*>(x) + i * size_of(type), n - i, y + i);
}
inline void narrow(DType type, const float* __restrict x, std::int64_t n, void* y) {
  std::int64_t i = 0;
  auto* half = static_cast<std::uint16_t*>(y);
  if (type == DType::f16)
    for (; i + 8 <= n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(half + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  from_float(type, x + i, n - i, static_cast<std::byte*>(y) + i * size_of(type));
}

}  // namespace rehearse::kernels::cpu
