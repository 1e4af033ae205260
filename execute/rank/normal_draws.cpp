// The loops below have neither branches nor calls, so that g++ makes vectors of them (-O3 -fno-math-errno, see
// CMakeLists.txt). Integers become doubles by their bits: 2^52 + i has i in its low bits.
//
// Errors, of ln u, relative: 1 - u is exact, the series of atanh is cut at 2e-19, and rounding adds less than 2e-15. Of
// cos, absolute: the C library's argument is off by 2 pi 2^-53 and its result by one rounding, ours by less, together
// 1.5e-15. The product, then, by less than |scale| sqrt(-2 ln u) 4e-15; kDoubt has room.
#include "execute/rank/normal_draws.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr double kDoubt = 2e-14;
constexpr std::uint64_t kMagic = 0x4330000000000000;  // 2^52

template <class T>
using Block = std::array<T, kBlock>;

double exact(std::uint64_t below_2_52) {
  return std::bit_cast<double>(kMagic | below_2_52) - 0x1p52;
}

__m128i twice(std::uint64_t x) {
  return _mm_set1_epi64x(static_cast<long long>(x));
}

// Two draws of Philox (sim/base/random.h) in 64-bit lanes of which the lower halves count; the upper of w0 become 0.
struct Draws {
  __m128i c0, c1, c2, c3;

  explicit Draws(std::uint64_t counter)
      : c0(_mm_add_epi64(twice(counter), _mm_set_epi64x(1, 0))),
        c1(_mm_srli_epi64(c0, 32)),
        c2(_mm_setzero_si128()),
        c3(_mm_setzero_si128()) {}
  void round(__m128i k0, __m128i k1) {
    const __m128i p0 = _mm_mul_epu32(twice(0xD2511F53), c0), p1 = _mm_mul_epu32(twice(0xCD9E8D57), c2);
    c0 = _mm_xor_si128(_mm_srli_epi64(p1, 32), _mm_xor_si128(c1, k0));
    c2 = _mm_xor_si128(_mm_srli_epi64(p0, 32), _mm_xor_si128(c3, k1));
    c1 = p1;
    c3 = p0;
  }
  void write(std::uint64_t* w0, std::uint64_t* w1) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(w0), _mm_and_si128(c0, twice(0xFFFFFFFF)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(w1), _mm_and_si128(c1, twice(0xFFFFFFFF)));
  }
};

// Two pairs take turns: a round's instructions wait for each other.
void draw(std::uint64_t key, std::uint64_t first, Block<std::uint64_t>* w0, Block<std::uint64_t>* w1) {
  __m128i k0[10], k1[10];
  for (std::uint64_t round = 0; round < 10; ++round) {
    k0[round] = twice(key + round * 0x9E3779B9);
    k1[round] = twice((key >> 32) + round * 0xBB67AE85);
  }
  for (std::size_t i = 0; i < kBlock; i += 4) {
    Draws a(first + i), b(first + i + 2);
    for (std::size_t round = 0; round < 10; ++round) {
      a.round(k0[round], k1[round]);
      b.round(k0[round], k1[round]);
    }
    a.write(&(*w0)[i], &(*w1)[i]);
    b.write(&(*w0)[i + 2], &(*w1)[i + 2]);
  }
}

// sqrt(-2 ln u): u = 2^e m with m in [1 / sqrt 2, sqrt 2), ln m = 2 atanh((m - 1) / (m + 1)).
double radius(std::uint64_t word) {
  const auto bits = std::bit_cast<std::uint64_t>(exact(word + 1) * 0x1p-32);
  constexpr std::uint64_t kHalfRoot = 0x3FE6A09E667F3BCD, kOne = 0x3FF0000000000000;  // 1 / sqrt 2, 1
  const std::uint64_t above = bits + (kOne - kHalfRoot);                              // m = 1 / sqrt 2: a power of two
  const double e = exact(above >> 52) - 1023.0;
  const auto m = std::bit_cast<double>((above & 0x000FFFFFFFFFFFFF) + kHalfRoot);
  const double s = (m - 1) / (m + 1), z = s * s;  // z < 0.0295
  double p = 1.0 / 23;
  for (const double c :
       {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3})
    p = p * z + c;
  const double log_m = 2 * (s + s * (z * p));
  // ln 2 in two parts, of which the first times e is exact (fdlibm's e_log.c has the same).
  return std::sqrt(-2 * (e * 6.93147180369123816490e-01 + (log_m + e * 1.90821492927058770002e-10)));
}

// cos(2 pi w / 2^32) by its quadrant and Taylor's series up to pi / 4, which are cut at 1e-17.
double cosine(std::uint64_t word) {
  const std::uint64_t quadrant = (word + (std::uint64_t{1} << 29)) >> 30 & 3;
  const std::uint64_t offset = (word + (std::uint64_t{1} << 29)) & 0x3FFFFFFF;  // 2^29 is the quadrant's middle
  const double x = (exact(offset) - 0x1p29) * (2 * std::numbers::pi * 0x1p-32), z = x * x;
  double c = -1.0 / 87178291200.0, s = -1.0 / 1307674368000.0;
  c = c * z + 1.0 / 479001600.0, s = s * z + 1.0 / 6227020800.0;
  c = c * z - 1.0 / 3628800.0, s = s * z - 1.0 / 39916800.0;
  c = c * z + 1.0 / 40320.0, s = s * z + 1.0 / 362880.0;
  c = c * z - 1.0 / 720.0, s = s * z - 1.0 / 5040.0;
  c = c * z + 1.0 / 24.0, s = s * z + 1.0 / 120.0;
  c = c * z - 0.5, s = s * z - 1.0 / 6.0;
  c = c * z + 1.0, s = (s * z + 1.0) * x;
  // cos, -sin, -cos, sin
  const std::uint64_t odd = 0 - (quadrant & 1), negative = (quadrant ^ quadrant >> 1) & 1;
  const std::uint64_t chosen = (std::bit_cast<std::uint64_t>(s) & odd) | (std::bit_cast<std::uint64_t>(c) & ~odd);
  return std::bit_cast<double>(chosen ^ negative << 63);
}

}  // namespace

float normal_value(std::uint32_t w0, std::uint32_t w1, double scale) {
  const double u = (w0 + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * (w1 * 0x1p-32);
  return static_cast<float>(scale * std::sqrt(-2 * std::log(u)) * std::cos(angle));
}

void normal_values(std::uint64_t key, std::uint64_t first, std::int64_t count, double scale, float* out) {
  Block<std::uint64_t> w0, w1;
  Block<double> size, value;
  Block<float> low, high;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    draw(key, first + static_cast<std::uint64_t>(begin), &w0, &w1);
    for (std::size_t i = 0; i < kBlock; ++i) size[i] = scale * radius(w0[i]);
    for (std::size_t i = 0; i < kBlock; ++i) value[i] = cosine(w1[i]);
    unsigned doubtful = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const double doubt = size[i] * kDoubt, x = size[i] * value[i];
      low[i] = static_cast<float>(x - doubt);
      high[i] = static_cast<float>(x + doubt);
    }
    for (std::size_t i = 0; i < kBlock; ++i) doubtful |= low[i] == high[i] && low[i] != 0 ? 0U : 1U;
    if (doubtful != 0)
      for (std::size_t i = 0; i < kBlock; ++i)
        if (low[i] != high[i] || low[i] == 0)
          low[i] = normal_value(static_cast<std::uint32_t>(w0[i]), static_cast<std::uint32_t>(w1[i]), scale);
    std::copy_n(low.begin(), std::min(kBlock, count - begin), out + begin);
  }
}

}  // namespace rehearse::execute
