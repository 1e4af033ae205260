// 8-bit copies on the CPU: scales, elements and layout against the definition, whatever the threads; products of copies
// are those of what the copies stand for.
#include "sim/base/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

using Bytes = std::vector<std::uint8_t>;

float widened(DType type, std::uint8_t x) {
  return type == DType::e5m2 ? E5m2::widen(x) : E4m3::widen(x);
}
std::uint8_t narrowed(DType type, float x) {
  return type == DType::e5m2 ? E5m2::narrow(x) : E4m3::narrow(x);
}

struct Copies {
  Bytes row, column;
  float amax = 0, inverse = 0;
};

Copies cast(Fp8Layout layout, DType type, const Floats& x, int threads, float largest = 0) {
  Copies c;
  layout.columns = false;
  c.row.assign(at(layout.bytes()), 0xAA);
  c.column = c.row;
  const auto device = make_cpu_device(threads);
  device->fp8_cast(layout, x.data(), {&largest, &c.amax, &c.inverse}, {c.row.data(), type}, {c.column.data(), type});
  return c;
}

Fp8Layout matrix(std::int64_t rows, std::int64_t cols, std::int64_t block = 0, bool powers = false,
                 bool square = false) {
  Fp8Layout l;
  l.rows = rows, l.cols = cols, l.block = block, l.powers = powers, l.square = square;
  return l;
}

constexpr DType kFp8Types[] = {DType::e4m3, DType::e5m2};

TEST(Fp8Kernels, TheLargestValueIsTheAbsoluteOne) {
  Floats x = Random(1).normal(40000);
  x[33333] = -77.5F;
  for (const int threads : {1, 3}) {
    float amax = -1;
    make_cpu_device(threads)->fp8_amax(40000, x.data(), &amax);
    EXPECT_EQ(amax, 77.5F);
  }
}

TEST(Fp8Kernels, ACastWithOneScaleFillsTheFormatAndHasItsTranspose) {
  constexpr std::int64_t kRows = 130, kCols = 70;
  const Floats x = Random(2).normal(kRows * kCols, 3e-4);
  for (const DType type : kFp8Types) {
    const float largest = 1e-3F, scale = largest_of(type) / largest;
    const Copies c = cast(matrix(kRows, kCols), type, x, 1, largest);
    EXPECT_EQ(c.inverse, 1 / scale);
    float most = 0;
    for (const float v : x) most = std::max(most, std::fabs(v));
    EXPECT_GT(most, largest) << "something saturates";
    EXPECT_EQ(c.amax, most);
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t k = 0; k < kCols; ++k) {
        EXPECT_EQ(c.row[at(r * kCols + k)], narrowed(type, x[at(r * kCols + k)] * scale));
        EXPECT_EQ(c.column[at(k * kRows + r)], c.row[at(r * kCols + k)]);
      }
    const Copies threads = cast(matrix(kRows, kCols), type, x, 3, largest);
    EXPECT_EQ(threads.row, c.row);
    EXPECT_EQ(threads.column, c.column);
    Bytes transposed(c.row.size());
    make_cpu_device(2)->fp8_transpose(kRows, kCols, {c.row.data(), type}, {transposed.data(), type});
    EXPECT_EQ(transposed, c.column);
  }
}

TEST(Fp8Kernels, AScaleIsOneWhereNothingIsKnown) {
  const Floats x = {0.5F, -2, 1000, 0};
  for (const float largest : {0.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Copies c = cast(matrix(2, 2), DType::e4m3, x, 1, largest);
    EXPECT_EQ(c.inverse, 1);
    EXPECT_EQ(c.row, (Bytes{narrowed(DType::e4m3, 0.5F), narrowed(DType::e4m3, -2), 0x7E, 0}));
  }
}

struct Blocks {
  std::int64_t block;
  bool powers, square;
};
constexpr Blocks kBlocks[] = {{32, true, false}, {128, false, false}, {128, false, true}};

// The scale that a block's largest value asks for.
float expected_inverse(const Blocks& b, DType type, float largest) {
  if (b.powers) return std::exp2(std::ceil(std::log2(largest / largest_of(type))));
  return 1 / std::exp2(std::floor(std::log2(largest_of(type) / largest)));
}

TEST(Fp8Kernels, BlocksHaveScalesBehindTheirRowsAndBehindTheirBandsOfColumns) {
  for (const Blocks& b : kBlocks)
    for (const DType type : kFp8Types) {
      const std::int64_t rows = 2 * b.block, cols = 3 * b.block, size = b.powers ? 1 : 4;
      Floats x = Random(3).normal(rows * cols);
      for (std::int64_t i = 0; i < rows * cols; ++i) x[at(i)] *= std::exp2(static_cast<float>(i / b.block % 13) - 6);
      const Copies c = cast(matrix(rows, cols, b.block, b.powers, b.square), type, x, 1);
      const auto inverse_at = [&](const Bytes& from, std::int64_t place) {
        float inverse = 0;
        if (b.powers) return float_of_e8m0(from.at(at(place)));
        std::memcpy(&inverse, &from.at(at(place)), 4);
        return inverse;
      };
      const auto largest = [&](std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
        float most = 0;
        for (std::int64_t r = r0; r < r1; ++r)
          for (std::int64_t k = c0; k < c1; ++k) most = std::max(most, std::fabs(x[at(r * cols + k)]));
        return most;
      };
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t k = 0; k < cols; ++k) {
          const std::int64_t r0 = r / b.block * b.block, k0 = k / b.block * b.block;
          const std::int64_t line = r * (cols + cols / b.block * size), band = r0 * cols + r0 / b.block * cols * size;
          const float by_row = inverse_at(c.row, line + cols + k / b.block * size);
          const float by_column = inverse_at(c.column, band + b.block * cols + k * size);
          const std::int64_t r1 = r0 + b.block, k1 = k0 + b.block;
          ASSERT_EQ(by_row, expected_inverse(b, type, b.square ? largest(r0, r1, k0, k1) : largest(r, r + 1, k0, k1)));
          ASSERT_EQ(by_column,
                    expected_inverse(b, type, b.square ? largest(r0, r1, k0, k1) : largest(r0, r1, k, k + 1)));
          ASSERT_EQ(c.row[at(line + k)], narrowed(type, x[at(r * cols + k)] / by_row));
          ASSERT_EQ(c.column[at(band + (r - r0) * cols + k)], narrowed(type, x[at(r * cols + k)] / by_column));
        }
      const Copies threads = cast(matrix(rows, cols, b.block, b.powers, b.square), type, x, 2);
      EXPECT_EQ(threads.row, c.row);
      EXPECT_EQ(threads.column, c.column);
    }
}

// A copy by rows has a scale for each row, behind it; one by columns for each column, behind all of them. 100 rows and
// 70 columns: no multiples of anything.
TEST(Fp8Kernels, WholeRowsAndWholeColumnsHaveScales) {
  constexpr std::int64_t kRows = 100, kCols = 70;
  Floats x = Random(8).normal(kRows * kCols);
  for (std::int64_t i = 0; i < kRows * kCols; ++i)
    x[at(i)] *= std::exp2(static_cast<float>(i % 11 + i / kCols % 7) - 8);
  for (std::int64_t r = 0; r < kRows; ++r) x[at(r * kCols + 5)] = 0;
  const Blocks scale{0, false, false};
  for (const int threads : {1, 3}) {
    const auto device = make_cpu_device(threads);
    Floats columns(kCols, -1.0F);
    device->fp8_column_amax(kRows, kCols, x.data(), columns.data());
    Fp8Layout by_rows = matrix(kRows, kCols, kCols), by_columns = matrix(kRows, kCols, kRows);
    by_columns.columns = true;
    ASSERT_EQ(by_rows.bytes(), kRows * (kCols + 4));
    ASSERT_EQ(by_columns.bytes(), (kRows + 4) * kCols);
    Bytes row(at(by_rows.bytes()), 0xAA), column(at(by_columns.bytes()), 0xAA);
    device->fp8_cast(by_rows, x.data(), {}, {row.data(), DType::e4m3}, nullptr);
    device->fp8_cast(by_columns, x.data(), {columns.data(), nullptr, nullptr}, nullptr, {column.data(), DType::e4m3});
    const auto inverse_at = [](const Bytes& from, std::int64_t place) {
      float inverse = 0;
      std::memcpy(&inverse, &from.at(at(place)), 4);
      return inverse;
    };
    for (std::int64_t k = 0; k < kCols; ++k) {
      float most = 0;
      for (std::int64_t r = 0; r < kRows; ++r) most = std::max(most, std::fabs(x[at(r * kCols + k)]));
      ASSERT_EQ(columns[at(k)], most);
      const float inverse = inverse_at(column, kRows * kCols + 4 * k);
      ASSERT_EQ(inverse, most == 0 ? 1 : expected_inverse(scale, DType::e4m3, most));
      for (std::int64_t r = 0; r < kRows; ++r)
        ASSERT_EQ(column[at(r * kCols + k)], narrowed(DType::e4m3, x[at(r * kCols + k)] / inverse));
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      float most = 0;
      for (std::int64_t k = 0; k < kCols; ++k) most = std::max(most, std::fabs(x[at(r * kCols + k)]));
      const float inverse = inverse_at(row, r * (kCols + 4) + kCols);
      ASSERT_EQ(inverse, expected_inverse(scale, DType::e4m3, most));
      for (std::int64_t k = 0; k < kCols; ++k)
        ASSERT_EQ(row[at(r * (kCols + 4) + k)], narrowed(DType::e4m3, x[at(r * kCols + k)] / inverse));
    }
    Floats wide(x.size());
    device->fp8_widen(by_columns, {column.data(), DType::e4m3}, wide.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(wide[i], x[i], columns[i % at(kCols)] / 16);
  }
}

TEST(Fp8Kernels, CopiesPutTogetherAreTheCopyOfTheWhole) {
  for (const Blocks& b : kBlocks) {
    const std::int64_t rows = 2 * b.block, cols = b.block;
    const Floats x = Random(4).normal(2 * rows * cols);
    const Floats first(x.begin(), x.begin() + rows * cols), second(x.begin() + rows * cols, x.end());
    const Copies whole = cast(matrix(2 * rows, cols, b.block, b.powers, b.square), DType::e4m3, x, 1);
    Copies one = cast(matrix(rows, cols, b.block, b.powers, b.square), DType::e4m3, first, 1);
    const Copies two = cast(matrix(rows, cols, b.block, b.powers, b.square), DType::e4m3, second, 1);
    one.row.insert(one.row.end(), two.row.begin(), two.row.end());
    one.column.insert(one.column.end(), two.column.begin(), two.column.end());
    EXPECT_EQ(one.row, whole.row);
    EXPECT_EQ(one.column, whole.column);
  }
}

// What a row-major matrix is after a cast and back.
Floats rounded(const Fp8Layout& l, DType type, const Copies& c, bool columns) {
  Floats y(at(l.rows * l.cols));
  const std::int64_t size = l.scale_bytes();
  for (std::int64_t r = 0; r < l.rows; ++r)
    for (std::int64_t k = 0; k < l.cols; ++k) {
      float& v = y[at(r * l.cols + k)];
      if (l.block == 0) {
        v = widened(type, columns ? c.column[at(k * l.rows + r)] : c.row[at(r * l.cols + k)]) * c.inverse;
        continue;
      }
      const std::int64_t line = r * (l.cols + l.cols / l.block * size), band = r / l.block * l.cols * (l.block + size);
      const Bytes& from = columns ? c.column : c.row;
      const std::int64_t scale = columns ? band + l.block * l.cols + k * size : line + l.cols + k / l.block * size;
      const std::int64_t element = columns ? band + r % l.block * l.cols + k : line + k;
      float inverse = 0;
      if (l.powers)
        inverse = float_of_e8m0(from[at(scale)]);
      else
        std::memcpy(&inverse, &from[at(scale)], 4);
      v = widened(type, from[at(element)]) * inverse;
    }
  return y;
}

TEST(Fp8Kernels, ProductsAreThoseOfWhatTheCopiesStandFor) {
  const Blocks kinds[] = {{0, false, false}, {32, true, false}, {128, false, false}};
  for (const Blocks& kind : kinds)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Gemm shape{128, 256, 384, transpose_a, transpose_b, true};
        const auto layout = [&](std::int64_t rows, std::int64_t cols, bool columns) {
          Fp8Layout l = matrix(rows, cols, kind.block, kind.powers);
          l.columns = columns;
          return l;
        };
        Fp8Layout of_a = transpose_a ? layout(384, 128, true) : layout(128, 384, false);
        Fp8Layout of_b = transpose_b ? layout(256, 384, false) : layout(384, 256, true);
        const Floats a = Random(5).normal(128 * 384), b = Random(6).normal(256 * 384);
        const Copies ca = cast(of_a, DType::e5m2, a, 1, 4), cb = cast(of_b, DType::e4m3, b, 1, 5);
        of_a.inverse = &ca.inverse, of_b.inverse = &cb.inverse;
        Floats c = Random(7).normal(128 * 256), expected = c;
        const auto device = make_cpu_device(2);
        device->gemm(shape, {(of_a.columns ? ca.column : ca.row).data(), DType::e5m2, &of_a},
                     {(of_b.columns ? cb.column : cb.row).data(), DType::e4m3, &of_b}, nullptr, c.data());
        device->gemm(shape, rounded(of_a, DType::e5m2, ca, of_a.columns).data(),
                     rounded(of_b, DType::e4m3, cb, of_b.columns).data(), nullptr, expected.data());
        EXPECT_EQ(c, expected);
        EXPECT_GT(relative_error(rounded(of_a, DType::e5m2, ca, of_a.columns), doubles(a)), 0.01) << "was it rounded?";
      }
}

TEST(Fp8Kernels, ANormCastsAsACastOfWhatItGives) {
  constexpr std::int64_t kRows = 33, kCols = 50;
  const Floats x = Random(8).normal(kRows * kCols), gamma = Random(9).normal(kCols), beta = Random(10).normal(kCols);
  for (const bool rms : {false, true}) {
    const auto device = make_cpu_device(1);
    const float* const shift = rms ? nullptr : beta.data();
    Floats wide = poisoned(kRows * kCols), stats(2 * kRows), stats8(2 * kRows);
    device->norm_forward(rms, kRows, kCols, 1e-5, x.data(), gamma.data(), shift, wide.data(), stats.data());
    const Copies expected = cast(matrix(kRows, kCols), DType::e4m3, wide, 1, 3);
    Copies c;
    c.row.resize(at(kRows * kCols));
    const float largest = 3;
    device->norm_forward_fp8(rms, kRows, kCols, 1e-5, x.data(), gamma.data(), shift, {&largest, &c.amax, &c.inverse},
                             {c.row.data(), DType::e4m3}, stats8.data());
    EXPECT_EQ(c.row, expected.row);
    EXPECT_EQ(c.amax, expected.amax);
    EXPECT_EQ(c.inverse, expected.inverse);
    EXPECT_EQ(stats, stats8);
  }
}

// Of three updates the largest counts; a tensor that was not cast, or whose largest value is no number, stays.
TEST(Fp8Kernels, DelayedScalingLooksAtTheLastUpdates) {
  constexpr std::int64_t kUpdates = 3;
  const auto device = make_cpu_device(1);
  Floats amax(2), history(2 * (1 + kUpdates)), window(2);
  const Floats seen = {5, 2, 7, 1, 3, 2, 0, std::numeric_limits<float>::infinity(), 1, 4};
  const Floats expected = {5, 5, 7, 7, 7, 3, 3, 3, 3, 4};
  for (std::size_t i = 0; i < seen.size(); ++i) {
    amax = {seen[i], 0};
    device->fp8_update(2, kUpdates, amax.data(), history.data(), window.data());
    EXPECT_EQ(window, (Floats{expected[i], 0})) << i;
    EXPECT_EQ(amax, (Floats{0, 0}));
  }
}

}  // namespace
}  // namespace rehearse::kernels
