// Dropout over rows of activations, and the random words that all dropouts use: Philox 4x32-10 (sim/base/random.h),
// four draws at a time in the 64-bit lanes of a vector, of which only the low halves mean anything.
#include <immintrin.h>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/dropout_row.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {

void dropout_words(std::uint64_t key, std::int64_t sequence, std::int64_t position, std::int64_t first_group,
                   std::int64_t groups, std::uint32_t* words) {
  const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m256i lanes = _mm256_set_epi64x(3, 2, 1, 0);
  const auto s = static_cast<std::uint64_t>(sequence);
  for (std::int64_t g = 0; g < groups; g += 4) {
    const auto counter = static_cast<long long>(dropout_counter(position, first_group + g));
    __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x(counter), lanes);
    __m256i c1 = _mm256_srli_epi64(c0, 32);
    __m256i c2 = _mm256_set1_epi64x(static_cast<long long>(s & 0xFFFFFFFF));
    __m256i c3 = _mm256_set1_epi64x(static_cast<long long>(s >> 32));
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const __m256i p0 = _mm256_mul_epu32(m0, c0), p1 = _mm256_mul_epu32(m1, c2);
      c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
      c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
      c1 = p1;
      c3 = p0;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    const __m256i w01 = _mm256_or_si256(_mm256_and_si256(c0, low), _mm256_slli_epi64(c1, 32));
    const __m256i w23 = _mm256_or_si256(_mm256_and_si256(c2, low), _mm256_slli_epi64(c3, 32));
    const __m256i even = _mm256_unpacklo_epi64(w01, w23), odd = _mm256_unpackhi_epi64(w01, w23);  // draws 0, 2 and 1, 3
    auto* out = reinterpret_cast<__m256i*>(words + 4 * g);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}

namespace {

// body(row, first column, columns, words) over the pieces of rows [begin, end) of an activation.
template <class Body>
void over_rows(const DropoutSite& site, std::int64_t begin, std::int64_t end, std::int64_t cols, const Body& body) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t sequence = site.sequences[row % site.micro_batch];
    const std::int64_t position = site.first_position + row / site.micro_batch;
    DropoutRow::pieces(
        site.key, sequence, position, 0, cols,
        [&](std::int64_t offset, std::int64_t count, const std::uint32_t* words) { body(row, offset, count, words); });
  }
}

}  // namespace

void CpuDevice::dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, const float* x, float* y,
                        std::uint8_t* mask) {
  if (site.probability == 0) {
    copy(rows * cols, x, y);
    if (mask) std::fill_n(mask, rows * cols, std::uint8_t{1});
    return;
  }
  REHEARSE_CHECK(mask, "dropout without a mask");
  const DropoutRow drop(site.probability);
  pool_.ranges(rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    over_rows(site, begin, end, cols,
              [&](std::int64_t row, std::int64_t offset, std::int64_t count, const std::uint32_t* words) {
                const float* __restrict in = x + row * cols + offset;
                float* __restrict out = y + row * cols + offset;
                std::uint8_t* __restrict keep = mask + row * cols + offset;
                for (std::int64_t i = 0; i < count; ++i)
                  out[i] = words[i] >= drop.threshold ? in[i] * drop.kept_scale : 0;
                for (std::int64_t i = 0; i < count; ++i) keep[i] = words[i] >= drop.threshold;
              });
  });
}

void CpuDevice::bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& site, const float* x,
                                 const float* bias, const float* residual, float* y, std::uint8_t* mask) {
  const DropoutRow drop(site.probability);
  const auto without_dropout = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * cols;
      for (std::int64_t i = 0; i < cols; ++i) y[at + i] = residual[at + i] + (bias ? x[at + i] + bias[i] : x[at + i]);
    }
    if (mask) std::fill(mask + begin * cols, mask + end * cols, std::uint8_t{1});
  };
  const auto with_dropout = [&](std::int64_t begin, std::int64_t end, int) {
    over_rows(site, begin, end, cols,
              [&](std::int64_t row, std::int64_t offset, std::int64_t count, const std::uint32_t* words) {
                const std::int64_t at = row * cols + offset;
                const float* __restrict in = x + at;
                const float* __restrict skip = residual + at;
                float* __restrict out = y + at;
                std::uint8_t* __restrict keep = mask + at;
                for (std::int64_t i = 0; i < count; ++i) {
                  const float value = bias ? in[i] + bias[offset + i] : in[i];
                  out[i] = skip[i] + (words[i] >= drop.threshold ? value * drop.kept_scale : 0);
                }
                for (std::int64_t i = 0; i < count; ++i) keep[i] = words[i] >= drop.threshold;
              });
  };
  if (site.probability == 0) {
    pool_.ranges(rows, 16, without_dropout);
  } else {
    REHEARSE_CHECK(mask, "dropout without a mask");
    pool_.ranges(rows, 16, with_dropout);
  }
}

void CpuDevice::dropout_backward(std::int64_t n, double probability, const float* dy, const std::uint8_t* mask,
                                 float* dx) {
  const auto kept_scale = static_cast<float>(1 / (1 - probability));
  pool_.ranges(n, 16384, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) dx[i] = mask[i] ? dy[i] * kept_scale : 0;
  });
}

}  // namespace rehearse::kernels::cpu
