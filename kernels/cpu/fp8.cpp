// 8-bit copies: how they are made, read back and transposed, and what delayed scaling keeps. Scales follow Transformer
// Engine 2.x: of a tensor the format's largest number over the tensor's (common/recipe/recipe_common.cuh), of blocks of
// 128 the same cut to a power of two (Float8BlockScaling's default), of 32 the largest value over the format's, as a
// power of two that is not below it (MXFP8: ptx::float_to_e8m0). Products read the copies as fp32 and are those of
// gemm.cpp: what a device multiplies in 8 bits and sums in fp32, but for the order of the sums.
#include "sim/base/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

// All numbers of a format, as constants: subnormal steps of their making would be flushed where denormals are.
template <class Format>
constexpr std::array<float, 256> all_values() {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) values[static_cast<std::size_t>(i)] = Format::widen(static_cast<std::uint8_t>(i));
  return values;
}
constexpr std::array<float, 256> kE4m3 = all_values<E4m3>(), kE5m2 = all_values<E5m2>();

const float* values_of(DType type) {
  REHEARSE_CHECK(is_fp8(type), "{} is not of 8 bits", name_of(type));
  return type == DType::e5m2 ? kE5m2.data() : kE4m3.data();
}

// Each with a scale of its own.
void narrow_each(DType type, const float* __restrict x, std::int64_t n, const float* __restrict scales,
                 std::uint8_t* __restrict y) {
  if (type == DType::e5m2)
    for (std::int64_t i = 0; i < n; ++i) y[i] = E5m2::narrow(x[i] * scales[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] = E4m3::narrow(x[i] * scales[i]);
}

void to_8_bits(DType type, const float* __restrict x, std::int64_t n, float scale, std::uint8_t* __restrict y) {
  if (type == DType::e5m2)
    for (std::int64_t i = 0; i < n; ++i) y[i] = E5m2::narrow(x[i] * scale);
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] = E4m3::narrow(x[i] * scale);
}

float largest_in(const float* x, std::int64_t n) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
  return most;
}

// Makes `largest` the format's largest number.
float scale_for(DType type, float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  return std::min(largest_of(type) / largest, std::numeric_limits<float>::max());
}
float power_below(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFF800000U);
}

// The scale of a block, and how it is stored: fp32 or a byte, what elements are multiplied by when they are read.
float block_scale(const Fp8Layout& l, DType type, float largest, std::uint8_t* stored) {
  if (!l.powers) {
    const float scale = power_below(scale_for(type, largest)), inverse = 1 / scale;
    std::memcpy(stored, &inverse, sizeof inverse);
    return scale;
  }
  *stored = e8m0_not_below(largest * (1 / largest_of(type)));
  return 1 / float_of_e8m0(*stored);
}
float stored_inverse(const Fp8Layout& l, const std::uint8_t* stored) {
  if (l.powers) return float_of_e8m0(*stored);
  float inverse;
  std::memcpy(&inverse, stored, sizeof inverse);
  return inverse;
}

constexpr std::int64_t kTile = 64;

// to[c * rows + r] = from[r * cols + c] of rows [begin, end).
template <class From, class To, class Convert>
void transpose(const From* from, std::int64_t rows, std::int64_t cols, std::int64_t begin, std::int64_t end, To* to,
               const Convert& convert) {
  for (std::int64_t r0 = begin; r0 < end; r0 += kTile)
    for (std::int64_t c0 = 0; c0 < cols; c0 += kTile)
      for (std::int64_t c = c0; c < std::min(cols, c0 + kTile); ++c)
        for (std::int64_t r = r0; r < std::min(end, r0 + kTile); ++r) to[c * rows + r] = convert(from[r * cols + c]);
}

// The largest values of the square blocks whose first row is `row`.
std::vector<float> largest_of_squares(const Fp8Layout& l, const float* x, std::int64_t row) {
  std::vector<float> most(static_cast<std::size_t>(l.cols / l.block), 0.0F);
  for (std::int64_t r = row; r < row + l.block; ++r)
    for (std::size_t b = 0; b < most.size(); ++b)
      most[b] = std::max(most[b], largest_in(x + r * l.cols + static_cast<std::int64_t>(b) * l.block, l.block));
  return most;
}

// most[c] = the largest of most[c] and of column c of x, a row of which is `stride` elements.
void largest_of_columns(std::int64_t rows, std::int64_t cols, std::int64_t stride, const float* x, float* most) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) most[c] = std::max(most[c], std::fabs(x[r * stride + c]));
}

// Columns [first, last) of the `block` rows whose first is `row`, with scales of these columns. squares: of square
// blocks, else empty. known: the largest values of columns; null: to be found.
void cast_columns(const Fp8Layout& l, DType type, const float* x, std::int64_t row, std::int64_t first,
                  std::int64_t last, const std::vector<float>& squares, const float* known, std::uint8_t* y) {
  std::uint8_t* const band = y + row / l.block * l.cols * (l.block + l.scale_bytes());
  const std::int64_t end = std::min(l.rows, row + l.block);
  std::uint8_t* const stored = band + (end - row) * l.cols;
  for (std::int64_t c0 = first; c0 < last; c0 += kTile) {
    const std::int64_t n = std::min(kTile, last - c0);
    std::array<float, kTile> most{}, scale;
    if (known != nullptr) std::copy_n(known + c0, n, most.data());
    if (known == nullptr && squares.empty())
      largest_of_columns(end - row, n, l.cols, x + row * l.cols + c0, most.data());
    for (std::int64_t c = 0; c < n; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const float largest = squares.empty() ? most[at] : squares[static_cast<std::size_t>((c0 + c) / l.block)];
      scale[at] = block_scale(l, type, largest, stored + (c0 + c) * l.scale_bytes());
    }
    for (std::int64_t r = row; r < end; ++r)
      narrow_each(type, x + r * l.cols + c0, n, scale.data(), band + (r - row) * l.cols + c0);
  }
}

void cast_row(const Fp8Layout& l, DType type, const float* x, std::int64_t row, const std::vector<float>& squares,
              std::uint8_t* y) {
  std::uint8_t* const to = y + row * l.cols / l.block * (l.block + l.scale_bytes());
  for (std::int64_t b = 0; b < l.cols / l.block; ++b) {
    const float* const from = x + row * l.cols + b * l.block;
    const float largest = squares.empty() ? largest_in(from, l.block) : squares[static_cast<std::size_t>(b)];
    to_8_bits(type, from, l.block, block_scale(l, type, largest, to + l.cols + b * l.scale_bytes()), to + b * l.block);
  }
}

}  // namespace

float CpuKernels::largest(std::int64_t n, const float* x) {
  std::vector<float> most(static_cast<std::size_t>(pool_.threads()), 0.0F);
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int part) {
    most[static_cast<std::size_t>(part)] = largest_in(x + begin, end - begin);
  });
  return *std::max_element(most.begin(), most.end());
}

void CpuKernels::column_amax(std::int64_t rows, std::int64_t cols, const float* x, float* amax) {
  pool_.ranges(cols, kTile, [&](std::int64_t begin, std::int64_t end, int) {
    std::fill(amax + begin, amax + end, 0.0F);
    largest_of_columns(rows, end - begin, cols, x + begin, amax + begin);
  });
}

void CpuKernels::fp8_cast(const Fp8Layout& l, DType type, float scale, const float* x, const float* known,
                          std::uint8_t* row, std::uint8_t* column) {
  if (known != nullptr)
    return pool_.ranges(l.cols, kTile, [&](std::int64_t begin, std::int64_t end, int) {
      cast_columns(l, type, x, 0, begin, end, {}, known, column);
    });
  const std::int64_t grain = column != nullptr || l.square ? std::max(l.block, kTile) : kTile;
  REHEARSE_CHECK(l.block == 0 || (l.cols % l.block == 0 && (!l.square || l.rows % l.block == 0)),
                 "{} x {} in blocks of {}", l.rows, l.cols, l.block);
  pool_.ranges(l.rows, grain, [&](std::int64_t begin, std::int64_t end, int) {
    if (l.block == 0) {
      if (row) to_8_bits(type, x + begin * l.cols, (end - begin) * l.cols, scale, row + begin * l.cols);
      const auto e5m2 = [scale](float v) { return E5m2::narrow(v * scale); };
      const auto e4m3 = [scale](float v) { return E4m3::narrow(v * scale); };
      if (column && type == DType::e5m2) transpose(x, l.rows, l.cols, begin, end, column, e5m2);
      if (column && type == DType::e4m3) transpose(x, l.rows, l.cols, begin, end, column, e4m3);
      return;
    }
    for (std::int64_t band = begin; band < end; band += l.block) {
      const std::vector<float> squares = l.square ? largest_of_squares(l, x, band) : std::vector<float>();
      for (std::int64_t r = band; row && r < std::min(end, band + l.block); ++r) cast_row(l, type, x, r, squares, row);
      if (column) cast_columns(l, type, x, band, 0, l.cols, squares, nullptr, column);
    }
  });
}

void CpuKernels::fp8_transpose(std::int64_t rows, std::int64_t cols, const std::uint8_t* x, std::uint8_t* y) {
  pool_.ranges(rows, kTile, [&](std::int64_t begin, std::int64_t end, int) {
    transpose(x, rows, cols, begin, end, y, [](std::uint8_t v) { return v; });
  });
}

void CpuKernels::fp8_widen(const Fp8Layout& l, DType type, const std::uint8_t* x, float* y) {
  if (type == DType::e2m1) return fp4_widen(l, x, y);
  const float* const values = values_of(type);
  const std::int64_t size = l.scale_bytes();
  if (l.block == 0) {
    const float inverse = *l.inverse;
    const auto widen = [=](std::uint8_t v) { return values[v] * inverse; };
    if (l.columns)
      return pool_.ranges(l.cols, kTile, [&](std::int64_t begin, std::int64_t end, int) {
        transpose(x, l.cols, l.rows, begin, end, y, widen);
      });
    return parallel(l.rows * l.cols, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = widen(x[i]);
    });
  }
  if (l.columns)
    return pool_.ranges(l.rows, kTile, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::uint8_t* const band = x + r / l.block * l.cols * (l.block + size);
        const std::uint8_t* const from = band + r % l.block * l.cols;
        const std::uint8_t* const stored = band + std::min(l.block, l.rows - r / l.block * l.block) * l.cols;
        for (std::int64_t c = 0; c < l.cols; ++c)
          y[r * l.cols + c] = values[from[c]] * stored_inverse(l, stored + c * size);
      }
    });
  pool_.ranges(l.rows, kTile, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::uint8_t* const from = x + r * l.cols / l.block * (l.block + size);
      for (std::int64_t b = 0; b < l.cols / l.block; ++b) {
        const float inverse = stored_inverse(l, from + l.cols + b * size);
        for (std::int64_t c = b * l.block; c < (b + 1) * l.block; ++c) y[r * l.cols + c] = values[from[c]] * inverse;
      }
    }
  });
}

void CpuDevice::fp8_amax(std::int64_t n, In x, float* amax) {
  *amax = kernels_.largest(n, Widened(*this).read(x, n));
}

void CpuDevice::fp8_column_amax(std::int64_t rows, std::int64_t cols, In x, float* amax) {
  kernels_.column_amax(rows, cols, Widened(*this).read(x, rows * cols), amax);
}

void CpuDevice::fp8_cast(const Fp8Layout& layout, In x, const Fp8Scale& scale, Out row, Out column) {
  Widened w(*this);
  const std::int64_t n = layout.rows * layout.cols;
  const float* const values = w.read(x, n);
  const DType type = row ? row.type : column.type;
  if (type == DType::e2m1) {
    *scale.inverse = kernels_.fp4_cast(layout, *scale.largest, values, static_cast<std::uint8_t*>(row.data),
                                       static_cast<std::uint8_t*>(column.data));
    return;
  }
  values_of(type);
  float factor = 1;
  if (layout.block == 0) {
    factor = scale_for(type, *scale.largest);
    *scale.inverse = 1 / factor;
    if (scale.amax) *scale.amax = std::max(*scale.amax, kernels_.largest(n, values));
  }
  kernels_.fp8_cast(layout, type, factor, values, layout.block > 0 && layout.columns ? scale.largest : nullptr,
                    static_cast<std::uint8_t*>(row.data), static_cast<std::uint8_t*>(column.data));
}

void CpuDevice::fp8_widen(const Fp8Layout& layout, In x, Out y) {
  Widened w(*this);
  kernels_.fp8_widen(layout, x.type, static_cast<const std::uint8_t*>(x.data), w.write(y, layout.rows * layout.cols));
}

void CpuDevice::fp8_recast(const Fp8Layout& layout, In x, Out y) {
  REHEARSE_CHECK(layout.block > 0 && !layout.columns, "a copy by rows without scales of blocks");
  float* const wide = scratch(kOperands - 1, layout.rows * layout.cols);
  fp8_widen(layout, x, wide);
  fp8_cast(layout, wide, {}, nullptr, y);
}

void CpuDevice::fp8_transpose(std::int64_t rows, std::int64_t cols, In x, Out y) {
  REHEARSE_CHECK(x.type == y.type && size_of(x.type) == 1, "the transpose of {} as {}", name_of(x.type),
                 name_of(y.type));
  kernels_.fp8_transpose(rows, cols, static_cast<const std::uint8_t*>(x.data), static_cast<std::uint8_t*>(y.data));
}

void CpuDevice::norm_forward_fp8(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta,
                                 const Fp8Scale& scale, Out y, float* stats) {
  float* const wide = scratch(kOperands - 1, rows * cols);
  norm_forward(rms, rows, cols, eps, x, gamma, beta, wide, stats);
  Fp8Layout layout;
  layout.rows = rows, layout.cols = cols;
  fp8_cast(layout, wide, scale, y, nullptr);
}

void CpuDevice::fp8_update(std::int64_t n, std::int64_t updates, float* amax, float* history, float* window) {
  for (std::int64_t i = 0; i < n; ++i) {
    float* const of = history + i * (updates + 1);
    if (amax[i] > 0 && std::isfinite(amax[i])) {
      const auto next = static_cast<std::int64_t>(of[0]);
      of[1 + next % updates] = amax[i];
      of[0] = static_cast<float>(next + 1 < 2 * updates ? next + 1 : updates);  // exact, and around
      window[i] = largest_in(of + 1, std::min(next + 1, updates));
    }
    amax[i] = 0;
  }
}

}  // namespace rehearse::kernels::cpu
