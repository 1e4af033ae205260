// The random numbers of a row of elements, as kernels/dropout.h defines them, many draws at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/dropout.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {

// numbers[8 * i + c] = the number of column c of group first_group + i. groups is a multiple of 8.
void dropout_numbers(std::uint64_t key, std::int64_t sequence, std::int64_t position, std::int64_t first_group,
                     std::int64_t groups, std::uint16_t* numbers);

// Which of eight elements, or of one, are kept; `kept(x, keep)` is x or zero.
struct KeepVec {
  __m256i bits;
};
inline Vec kept(Vec x, KeepVec keep) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(keep.bits));
}
inline float kept(float x, bool keep) {
  return keep ? x : 0;
}

// What a dropout does to the rows it is applied to.
struct DropoutRow {
  std::uint16_t threshold;
  float kept_scale;  // 1 / (1 - probability)
  // If anything is dropped at all.
  std::uint64_t key = 0;
  std::int64_t first_sequence = 0;

  explicit DropoutRow(const DropoutSite& site)
      : threshold(dropout_threshold(site.probability)), kept_scale(static_cast<float>(1 / (1 - site.probability))) {
    REHEARSE_CHECK(site.probability >= 0 && site.probability < 1, "dropout of {}", site.probability);
    if (site.probability == 0) return;
    REHEARSE_CHECK(site.step, "dropout without its step");
    key = dropout_key(site);
    first_sequence = dropout_sequence(site, 0);
  }

  // body(i, tag, keep) for i in [0, n), eight at a time and one by one, from numbers as `pieces` gives them. `mask`, if
  // any, gets 1 where kept, else 0.
  template <class Body>
  void each(std::int64_t n, const std::uint16_t* numbers, std::uint8_t* mask, const Body& body) const {
    const __m256i bound = _mm256_set1_epi16(static_cast<short>(threshold));
    const auto sixteen = [&](std::int64_t i) {
      const __m256i number = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers + i));
      const __m256i bits = _mm256_cmpeq_epi16(_mm256_max_epu16(number, bound), number);  // number >= bound
      body(i, Vec{}, KeepVec{_mm256_cvtepi16_epi32(_mm256_castsi256_si128(bits))});
      body(i + 8, Vec{}, KeepVec{_mm256_cvtepi16_epi32(_mm256_extracti128_si256(bits, 1))});
      return bits;
    };
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
      const __m256i b0 = sixteen(i), b1 = sixteen(i + 16);
      if (!mask) continue;
      // Packing works in halves of a vector: the quarters of the result are put in order afterwards.
      const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(b0, b1), 0xD8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(mask + i), _mm256_and_si256(bytes, _mm256_set1_epi8(1)));
    }
    for (; i < n; ++i) {
      const bool keep = numbers[i] >= threshold;
      body(i, 0.0f, keep);
      if (mask) mask[i] = keep;
    }
  }

  // body(offset, count, numbers) for pieces of columns [first_column, first_column + n): column first_column + offset +
  // i is kept if numbers[i] >= threshold.
  template <class Body>
  static void pieces(std::uint64_t key, std::int64_t sequence, std::int64_t position, std::int64_t first_column,
                     std::int64_t n, const Body& body) {
    constexpr std::int64_t kGroups = 64, kNumbers = kGroups * kDropoutGroup;
    alignas(32) std::array<std::uint16_t, kNumbers> numbers;
    std::int64_t skip = first_column % kDropoutGroup;
    for (std::int64_t done = 0; done < n;) {
      const std::int64_t count = std::min(n - done, kNumbers - skip);
      const std::int64_t groups = (skip + count + 63) / 64 * 8;
      dropout_numbers(key, sequence, position, (first_column + done) / kDropoutGroup, groups, numbers.data());
      body(done, count, numbers.data() + skip);
      done += count;
      skip = 0;
    }
  }
};

}  // namespace rehearse::kernels::cpu
