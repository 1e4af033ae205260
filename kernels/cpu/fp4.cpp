// 4-bit copies, as NVIDIA trains with NVFP4 (2025, arXiv 2509.25149, appendix C): with s = 6 * 448 / the tensor's
// largest value, a block of 16 whose largest value is b has the scale e4m3(s b / 6), and an element x the code e2m1(x s
// / that scale); read back, a code is multiplied by the scale and by 1 / s. Copies by columns that weights' gradients
// read are of what a random Hadamard transform makes of each 16 rows of a column (section 4.2): H D x, D a diagonal of
// signs that are the same everywhere, H the Hadamard matrix over 4; both operands are transformed alike, so that their
// product is what it was. Gradients are rounded by chance, which here depends on the number, its column and the step
// alone: any split of the rows draws the same.
#include "sim/base/fp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "sim/base/check.h"
#include "sim/base/fp8.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr std::int64_t kFourBitBlock = 16;
constexpr float kFourBitMost = E2m1::kLargest * 448.0F;
// Signs of the transform, one a row of a block: set bits are minus. Any will do; these are of sqrt(2)'s binary digits.
constexpr std::uint32_t kSigns = 0x6A09U;

// A number in [0, 1) for each (draw, number, column): the finaliser of MurmurHash3.
float chance(std::uint64_t draw, float x, std::int64_t column) {
  std::uint64_t h =
      draw ^ (static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(x)) << 32 | static_cast<std::uint64_t>(column));
  h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDULL;
  h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53ULL;
  return static_cast<float>((h ^ h >> 33) >> 40) * 0x1p-24F;
}

float largest_of_block(const float* x, std::int64_t n) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

float scale_of(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  return std::min(kFourBitMost / largest, std::numeric_limits<float>::max());
}

// The block's scale as stored, and what its elements are multiplied by.
float block_scale(float scale, float largest, std::uint8_t* stored) {
  *stored = E4m3::narrow(largest / E2m1::kLargest * scale);
  const float by = E4m3::widen(*stored) / scale;
  return by > 0 ? std::min(1 / by, std::numeric_limits<float>::max()) : std::numeric_limits<float>::max();
}

std::uint8_t code_of(const Fp8Layout& l, float x, float by, std::int64_t column) {
  return l.at_random ? E2m1::narrow_at_random(x * by, chance(l.draw, x, column)) : E2m1::narrow(x * by);
}

void put_code(std::uint8_t* bytes, std::int64_t i, std::uint8_t code) {
  std::uint8_t& byte = bytes[i / 2];
  byte = static_cast<std::uint8_t>(i % 2 == 0 ? (byte & 0xF0U) | code : (byte & 0x0FU) | code << 4U);
}
std::uint8_t code_at(const std::uint8_t* bytes, std::int64_t i) {
  return i % 2 == 0 ? bytes[i / 2] & 0x0FU : bytes[i / 2] >> 4U;
}

// A block of a column, by Walsh and Hadamard's butterflies.
std::array<float, kFourBitBlock> transformed(const Fp8Layout& l, const float* x, std::int64_t row,
                                             std::int64_t column) {
  std::array<float, kFourBitBlock> v{};
  for (std::size_t r = 0; r < kFourBitBlock; ++r) {
    const float value = x[(row + static_cast<std::int64_t>(r)) * l.cols + column];
    v[r] = (kSigns >> r & 1U) != 0 ? -value : value;
  }
  for (std::size_t half = 1; half < kFourBitBlock; half *= 2)
    for (std::size_t i = 0; i < kFourBitBlock; i += 2 * half)
      for (std::size_t j = i; j < i + half; ++j) {
        const float a = v[j], b = v[j + half];
        v[j] = a + b, v[j + half] = a - b;
      }
  for (float& value : v) value *= 0.25F;
  return v;
}

std::array<float, kFourBitBlock> as_it_is(const Fp8Layout& l, const float* x, std::int64_t row, std::int64_t column) {
  std::array<float, kFourBitBlock> v{};
  for (std::size_t r = 0; r < kFourBitBlock; ++r) v[r] = x[(row + static_cast<std::int64_t>(r)) * l.cols + column];
  return v;
}

// Of the square blocks whose first row is `row`.
std::vector<float> largest_of_small_squares(const Fp8Layout& l, const float* x, std::int64_t row) {
  std::vector<float> most(static_cast<std::size_t>(l.cols / kFourBitBlock), 0.0F);
  for (std::int64_t r = row; r < row + kFourBitBlock; ++r)
    for (std::size_t b = 0; b < most.size(); ++b)
      most[b] = std::max(
          most[b], largest_of_block(x + r * l.cols + static_cast<std::int64_t>(b) * kFourBitBlock, kFourBitBlock));
  return most;
}

void cast_row(const Fp8Layout& l, float scale, const float* x, std::int64_t row, const std::vector<float>& squares,
              std::uint8_t* y) {
  std::uint8_t* const to = y + row * (l.cols / 2 + l.cols / kFourBitBlock);
  for (std::int64_t b = 0; b < l.cols / kFourBitBlock; ++b) {
    const float* const from = x + row * l.cols + b * kFourBitBlock;
    const float most = squares.empty() ? largest_of_block(from, kFourBitBlock) : squares[static_cast<std::size_t>(b)];
    const float by = block_scale(scale, most, to + l.cols / 2 + b);
    for (std::int64_t i = 0; i < kFourBitBlock; ++i)
      put_code(to, b * kFourBitBlock + i, code_of(l, from[i], by, b * kFourBitBlock + i));
  }
}

void cast_columns(const Fp8Layout& l, float scale, const float* x, std::int64_t row, const std::vector<float>& squares,
                  std::uint8_t* y) {
  std::uint8_t* const band = y + row / kFourBitBlock * l.cols * (kFourBitBlock / 2 + 1);
  for (std::int64_t c = 0; c < l.cols; ++c) {
    const auto v = l.square ? as_it_is(l, x, row, c) : transformed(l, x, row, c);
    const float most = squares.empty() ? largest_of_block(v.data(), kFourBitBlock)
                                       : squares[static_cast<std::size_t>(c / kFourBitBlock)];
    const float by = block_scale(scale, most, band + kFourBitBlock * l.cols / 2 + c);
    for (std::size_t r = 0; r < kFourBitBlock; ++r)
      put_code(band + static_cast<std::int64_t>(r) * l.cols / 2, c, code_of(l, v[r], by, c));
  }
}

}  // namespace

float CpuKernels::fp4_largest(const Fp8Layout& l, const float* x) {
  std::vector<float> most(static_cast<std::size_t>(pool_.threads()), 0.0F);
  pool_.ranges(l.rows, kFourBitBlock, [&](std::int64_t begin, std::int64_t end, int part) {
    float& own = most[static_cast<std::size_t>(part)];
    for (std::int64_t row = begin; row < end; row += kFourBitBlock)
      for (std::int64_t c = 0; c < l.cols; ++c)
        own = std::max(own, largest_of_block(transformed(l, x, row, c).data(), kFourBitBlock));
  });
  return *std::max_element(most.begin(), most.end());
}

float CpuKernels::fp4_cast(const Fp8Layout& l, float largest, const float* x, std::uint8_t* row, std::uint8_t* column) {
  REHEARSE_CHECK(l.block == kFourBitBlock && l.cols % kFourBitBlock == 0 &&
                     (l.rows % kFourBitBlock == 0 || (!column && !l.square)),
                 "{} x {} in blocks of {}", l.rows, l.cols, kFourBitBlock);
  if (column && !l.square) largest = fp4_largest(l, x);
  const float scale = scale_of(largest);
  pool_.ranges(l.rows, kFourBitBlock, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t band = begin; band < end; band += kFourBitBlock) {
      const std::vector<float> squares = l.square ? largest_of_small_squares(l, x, band) : std::vector<float>();
      for (std::int64_t r = band; row && r < std::min(end, band + kFourBitBlock); ++r)
        cast_row(l, scale, x, r, squares, row);
      if (column) cast_columns(l, scale, x, band, squares, column);
    }
  });
  return 1 / scale;
}

void CpuKernels::fp4_widen(const Fp8Layout& l, const std::uint8_t* x, float* y) {
  const float inverse = *l.inverse;
  pool_.ranges(l.rows, kFourBitBlock, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::uint8_t* const band = x + r / kFourBitBlock * l.cols * (kFourBitBlock / 2 + 1);
      const std::uint8_t* const codes =
          l.columns ? band + r % kFourBitBlock * l.cols / 2 : x + r * (l.cols / 2 + l.cols / kFourBitBlock);
      const std::uint8_t* const scales = l.columns ? band + kFourBitBlock * l.cols / 2 : codes + l.cols / 2;
      for (std::int64_t c = 0; c < l.cols; ++c)
        y[r * l.cols + c] =
            E2m1::widen(code_at(codes, c)) * (E4m3::widen(scales[l.columns ? c : c / kFourBitBlock]) * inverse);
    }
  });
}

}  // namespace rehearse::kernels::cpu
