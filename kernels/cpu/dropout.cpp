// Dropout over rows of activations, and the random numbers that all dropouts use: Philox 4x32-10 (sim/base/random.h),
// four draws at a time in the 64-bit lanes of a vector, of which only the low halves mean anything.
#include <immintrin.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/dropout_row.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

// Ten rounds' keys and the multipliers of Philox, in every lane.
struct PhiloxKeys {
  __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
  __m256i k0[10], k1[10];

  explicit PhiloxKeys(std::uint64_t key) {
    for (std::uint32_t round = 0; round < 10; ++round) {
      k0[round] = _mm256_set1_epi64x(static_cast<std::uint32_t>(key) + round * 0x9E3779B9);
      k1[round] = _mm256_set1_epi64x(static_cast<std::uint32_t>(key >> 32) + round * 0xBB67AE85);
    }
  }
};

// Four draws whose counters differ in the lowest word.
struct PhiloxDraws {
  __m256i c0, c1, c2, c3;

  PhiloxDraws(std::uint64_t counter, std::uint64_t sequence)
      : c0(_mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(counter)), _mm256_set_epi64x(3, 2, 1, 0))),
        c1(_mm256_srli_epi64(c0, 32)),
        c2(_mm256_set1_epi64x(static_cast<long long>(sequence & 0xFFFFFFFF))),
        c3(_mm256_set1_epi64x(static_cast<long long>(sequence >> 32))) {}

  void round(const PhiloxKeys& keys, int number) {
    const auto high = [](__m256i x) { return _mm256_shuffle_epi32(x, 0xF5); };  // to the low half of each lane
    const __m256i p0 = _mm256_mul_epu32(keys.m0, c0), p1 = _mm256_mul_epu32(keys.m1, c2);
    c0 = _mm256_xor_si256(high(p1), _mm256_xor_si256(c1, keys.k0[number]));
    c2 = _mm256_xor_si256(high(p0), _mm256_xor_si256(c3, keys.k1[number]));
    c1 = p1;
    c3 = p0;
  }
  void write(std::uint16_t* numbers) const {
    const __m256i w01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xAA);
    const __m256i w23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(w01, w23), odd = _mm256_unpackhi_epi64(w01, w23);  // draws 0, 2 and 1, 3
    auto* out = reinterpret_cast<__m256i*>(numbers);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

}  // namespace

// Two sets of draws take turns: a round's instructions wait for each other.
void dropout_numbers(std::uint64_t key, std::int64_t sequence, std::int64_t position, std::int64_t first_group,
                     std::int64_t groups, std::uint16_t* numbers) {
  const PhiloxKeys keys(key);
  for (std::int64_t g = 0; g < groups; g += 8) {
    const std::uint64_t counter = dropout_counter(position, first_group + g);
    PhiloxDraws a(counter, static_cast<std::uint64_t>(sequence)), b(counter + 4, static_cast<std::uint64_t>(sequence));
    for (int round = 0; round < 10; ++round) {
      a.round(keys, round);
      b.round(keys, round);
    }
    a.write(numbers + kDropoutGroup * g);
    b.write(numbers + kDropoutGroup * (g + 4));
  }
}

namespace {

// body(row, first column, columns, numbers) over the pieces of rows [begin, end) of an activation.
template <class Body>
void over_rows(const DropoutSite& site, const DropoutRow& drop, std::int64_t begin, std::int64_t end, std::int64_t cols,
               const Body& body) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t sequence = drop.first_sequence + row % site.micro_batch;
    const std::int64_t position = site.first_position + row / site.micro_batch;
    DropoutRow::pieces(drop.key, sequence, position, 0, cols,
                       [&](std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
                         body(row, offset, count, numbers);
                       });
  }
}

}  // namespace

void CpuKernels::dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, const float* x, float* y,
                         std::uint8_t* mask) {
  if (site.probability == 0) {
    copy(rows * cols, x, y);
    if (mask) std::fill_n(mask, rows * cols, std::uint8_t{1});
    return;
  }
  REHEARSE_CHECK(mask, "dropout without a mask");
  const DropoutRow drop(site);
  pool_.ranges(rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    over_rows(site, drop, begin, end, cols,
              [&](std::int64_t row, std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
                const float* in = x + row * cols + offset;
                float* out = y + row * cols + offset;
                drop.each(count, numbers, mask + row * cols + offset, [=](std::int64_t i, auto tag, auto keep) {
                  put(out + i, kept(get(in + i, tag) * drop.kept_scale, keep));
                });
              });
  });
}

void CpuKernels::bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& site, const float* x,
                                  const float* bias, const float* residual, float* y, std::uint8_t* mask) {
  const DropoutRow drop(site);
  const auto without_dropout = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * cols;
      for (std::int64_t i = 0; i < cols; ++i) y[at + i] = residual[at + i] + (bias ? x[at + i] + bias[i] : x[at + i]);
    }
    if (mask) std::fill(mask + begin * cols, mask + end * cols, std::uint8_t{1});
  };
  const auto with_dropout = [&](std::int64_t begin, std::int64_t end, int) {
    over_rows(site, drop, begin, end, cols,
              [&](std::int64_t row, std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
                const std::int64_t at = row * cols + offset;
                const float *in = x + at, *skip = residual + at, *biases = bias ? bias + offset : nullptr;
                float* out = y + at;
                if (biases) {
                  drop.each(count, numbers, mask + at, [=](std::int64_t i, auto tag, auto keep) {
                    const auto value = (get(in + i, tag) + get(biases + i, tag)) * drop.kept_scale;
                    put(out + i, get(skip + i, tag) + kept(value, keep));
                  });
                } else {
                  drop.each(count, numbers, mask + at, [=](std::int64_t i, auto tag, auto keep) {
                    put(out + i, get(skip + i, tag) + kept(get(in + i, tag) * drop.kept_scale, keep));
                  });
                }
              });
  };
  if (site.probability == 0) {
    pool_.ranges(rows, 16, without_dropout);
  } else {
    REHEARSE_CHECK(mask, "dropout without a mask");
    pool_.ranges(rows, 16, with_dropout);
  }
}

void CpuKernels::dropout_backward(std::int64_t n, double probability, const float* dy, const std::uint8_t* mask,
                                  float* dx) {
  const auto kept_scale = static_cast<float>(1 / (1 - probability));
  pool_.ranges(n, 16384, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) dx[i] = mask[i] ? dy[i] * kept_scale : 0;
  });
}

}  // namespace rehearse::kernels::cpu
