// Eight floats at a time, by the compiler's vector extensions, for what it does not vectorise by itself without
// changing the meaning of NaN: reductions. And exp, for scalars (which the compiler vectorises in loops) and for
// vectors.
//
// exp: x = n ln 2 + r, |r| <= ln 2 / 2, and 1 + r + r^2 q(r) for e^r with the quartic q of least greatest relative
// error (Remez; 3.1e-9, a twentieth of a unit in the last place). With all roundings the error is below 0.9 units in
// the last place, measured over every float. Zero below -87.33 (where the result is subnormal), infinity from 88.38
// (exactly: 88.72); NaN stays NaN.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

namespace rehearse::kernels::cpu {

using Vec = float __attribute__((vector_size(32)));
using VecUint = std::uint32_t __attribute__((vector_size(32)));
inline constexpr std::int64_t kLanes = 8;

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}
inline Vec splat(float x) {
  return Vec{x, x, x, x, x, x, x, x};
}
inline float sum(Vec v) {
  return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}
// b where either is NaN.
inline Vec max(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}
inline Vec min(Vec a, Vec b) {
  return _mm256_min_ps(a, b);
}
inline float max(float a, float b) {
  return a > b ? a : b;
}
inline float min(float a, float b) {
  return a < b ? a : b;
}
inline float max(Vec v) {
  float m = v[0];
  for (int i = 1; i < 8; ++i) m = max(m, v[i]);
  return m;
}
// y, or zero where x < low; y where x is NaN.
inline float zero_below(float x, float low, float y) {
  return x < low ? 0 : y;
}
inline Vec zero_below(Vec x, Vec low, Vec y) {
  return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_NLT_UQ), y);
}

// a b + c, rounded once.
inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
// x in every lane of F.
template <class F>
inline F all(float x) {
  return F{} + x;
}

// e^x where 2^n neither overflows nor is subnormal. F is float or Vec, I the integers of its width.
template <class F, class I>
inline F exp_within(F x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the float.
  const F magic = all<F>(12582912.0f), log2_e = all<F>(1.44269504088896341f);
  const F minus_ln2_high = all<F>(-0.693359375f), minus_ln2_low = all<F>(2.12194440e-4f);
  const F shifted = fma(x, log2_e, magic);
  const F n = shifted - magic;
  const F r = fma(n, minus_ln2_low, fma(n, minus_ln2_high, x));
  F p = fma(r, all<F>(1.381459638e-3f), all<F>(8.368717091e-3f));
  p = fma(p, r, all<F>(4.166838809e-2f));
  p = fma(p, r, all<F>(1.666652063e-1f));
  p = fma(p, r, all<F>(4.999999345e-1f));
  p = fma(p, r, all<F>(1.0f));
  p = fma(p, r, all<F>(1.0f));
  const I power = (std::bit_cast<I>(shifted) << 23) + 0x3F800000;  // 2^n; infinity for n = 128
  return p * std::bit_cast<F>(power);
}

inline constexpr float kExpLow = -87.33654f, kExpHigh = 88.9f;
inline float exp(float x) {
  return zero_below(x, kExpLow, exp_within<float, std::uint32_t>(min(kExpHigh, x)));
}
inline Vec exp(Vec x) {
  return zero_below(x, splat(kExpLow), exp_within<Vec, VecUint>(min(splat(kExpHigh), x)));
}
// For x <= 0 and sums that one such term is at least 1 of: 1.2e-38 stands for everything below.
inline float exp_for_sum(float x) {
  return exp_within<float, std::uint32_t>(max(kExpLow, x));
}
inline Vec exp_for_sum(Vec x) {
  return exp_within<Vec, VecUint>(max(splat(kExpLow), x));
}

// Sums over rows of n, in two (four) interleaved vectors: the order does not depend on alignment.
template <class Term>
inline float sum_terms(std::int64_t n, const Term& term) {
  Vec s0{}, s1{}, s2{}, s3{};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 += term(i, Vec{});
    s1 += term(i + kLanes, Vec{});
    s2 += term(i + 2 * kLanes, Vec{});
    s3 += term(i + 3 * kLanes, Vec{});
  }
  for (; i + kLanes <= n; i += kLanes) s0 += term(i, Vec{});
  float rest = 0;
  for (; i < n; ++i) rest += term(i, 0.0f);
  return sum((s0 + s1) + (s2 + s3)) + rest;
}

// Loads a Vec or a float, by the type of the tag: lets one lambda be both the vector and the tail of a loop.
inline Vec get(const float* p, Vec) {
  return load(p);
}
inline float get(const float* p, float) {
  return *p;
}
inline void put(float* p, Vec v) {
  store(p, v);
}
inline void put(float* p, float v) {
  *p = v;
}

// body(i, tag) for i in [begin, end): eight at a time, then one by one.
template <class Body>
inline void each(std::int64_t begin, std::int64_t end, const Body& body) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, Vec{});
  for (; i < end; ++i) body(i, 0.0f);
}

inline float dot(std::int64_t n, const float* a, const float* b) {
  return sum_terms(n, [=](std::int64_t i, auto tag) { return get(a + i, tag) * get(b + i, tag); });
}

inline float max_of(std::int64_t n, const float* x) {
  Vec m0 = splat(-std::numeric_limits<float>::infinity()), m1 = m0, m2 = m0, m3 = m0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    m0 = max(m0, load(x + i));
    m1 = max(m1, load(x + i + kLanes));
    m2 = max(m2, load(x + i + 2 * kLanes));
    m3 = max(m3, load(x + i + 3 * kLanes));
  }
  float m = max(max(max(m0, m1), max(m2, m3)));
  for (; i < n; ++i) m = max(m, x[i]);
  return m;
}

}  // namespace rehearse::kernels::cpu
