// 4-bit copies on the CPU: codes, scales and layout against the definition in double precision, what the transform
// keeps, and products of copies.
#include "sim/base/fp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "sim/base/fp8.h"
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::int64_t kFp4Rows = 48, kFp4Cols = 80, kFp4Block = 16;

Fp8Layout four_bits(bool columns, bool square = false) {
  Fp8Layout l;
  l.rows = kFp4Rows, l.cols = kFp4Cols, l.block = kFp4Block, l.packed = 2;
  l.columns = columns, l.square = square;
  return l;
}

struct Fp4Copy {
  Bytes bytes;
  float inverse = 0;
};

Fp4Copy cast4(Fp8Layout layout, const Floats& x, float largest, int threads = 1) {
  Fp4Copy c;
  c.bytes.assign(at(layout.bytes()), 0xAA);
  const Out out{c.bytes.data(), DType::e2m1};
  const bool columns = layout.columns;
  layout.columns = false;
  make_cpu_device(threads)->fp8_cast(layout, x.data(), {&largest, nullptr, &c.inverse}, columns ? Out() : out,
                                     columns ? out : Out());
  return c;
}

float largest_of_all(const Floats& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  return most;
}

int nibble(const Bytes& bytes, std::int64_t i) {
  return i % 2 == 0 ? bytes[at(i / 2)] & 15 : bytes[at(i / 2)] >> 4;
}

// The nearest code, ties to the even one, of all sixteen.
double nearest(double x) {
  double best = 0;
  for (int code = 0; code < 8; ++code) {
    const double value = static_cast<double>(E2m1::widen(static_cast<std::uint8_t>(code)));
    const double now = std::abs(std::abs(x) - value), before = std::abs(std::abs(x) - best);
    if (code == 0 || now < before || (now == before && code % 2 == 0)) best = value;
  }
  return x < 0 ? -best : best;
}

TEST(Fp4Kernels, RowsAreCodesAndScalesOfSixteen) {
  const Floats x = Random(7).normal(kFp4Rows * kFp4Cols, 0.03);
  const float most = largest_of_all(x);
  const Fp4Copy c = cast4(four_bits(false), x, most);
  const float scale = 6.0F * 448.0F / most;
  EXPECT_EQ(c.inverse, 1 / scale);
  constexpr std::int64_t kRowBytes = kFp4Cols / 2 + kFp4Cols / kFp4Block;
  ASSERT_EQ(static_cast<std::int64_t>(c.bytes.size()), kFp4Rows * kRowBytes);
  for (std::int64_t r = 0; r < kFp4Rows; ++r) {
    const Bytes row(c.bytes.begin() + r * kRowBytes, c.bytes.begin() + (r + 1) * kRowBytes);
    for (std::int64_t b = 0; b < kFp4Cols / kFp4Block; ++b) {
      float own = 0;
      for (std::int64_t i = 0; i < kFp4Block; ++i)
        own = std::max(own, std::fabs(x[at(r * kFp4Cols + b * kFp4Block + i)]));
      const std::uint8_t stored = row[at(kFp4Cols / 2 + b)];
      EXPECT_EQ(stored, E4m3::narrow(own / 6 * scale)) << r << " " << b;
      const double by = 1 / (static_cast<double>(E4m3::widen(stored)) / static_cast<double>(scale));
      for (std::int64_t i = 0; i < kFp4Block; ++i) {
        const double value = static_cast<double>(x[at(r * kFp4Cols + b * kFp4Block + i)]) * by;
        const double code = static_cast<double>(E2m1::widen(static_cast<std::uint8_t>(nibble(row, b * kFp4Block + i))));
        // As good as the nearest: near a middle of two, fp32 may say the other one.
        EXPECT_LE(std::abs(code - value), std::abs(nearest(value) - value) + 1e-5 * std::abs(value)) << r << " " << i;
      }
    }
  }
  EXPECT_EQ(cast4(four_bits(false), x, most, 3).bytes, c.bytes) << "threads";
}

TEST(Fp4Kernels, AWeightsTwoCopiesStandForTheSameNumbers) {
  const Floats x = Random(8).normal(kFp4Rows * kFp4Cols);
  Fp8Layout row = four_bits(false, true), column = four_bits(true, true);
  const Fp4Copy rows = cast4(row, x, largest_of_all(x)), columns = cast4(column, x, largest_of_all(x));
  row.inverse = &rows.inverse, column.inverse = &columns.inverse;
  Floats of_rows(x.size()), of_columns(x.size());
  const auto device = make_cpu_device(2);
  device->fp8_widen(row, {rows.bytes.data(), DType::e2m1}, of_rows.data());
  device->fp8_widen(column, {columns.bytes.data(), DType::e2m1}, of_columns.data());
  EXPECT_EQ(of_rows, of_columns);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    error += std::pow(static_cast<double>(x[i] - of_rows[i]), 2), size += std::pow(static_cast<double>(x[i]), 2);
  EXPECT_LT(std::sqrt(error / size), 0.15);
  EXPECT_GT(std::sqrt(error / size), 0.02) << "was anything rounded?";
}

// Of the identity the copy by columns is the transform itself, in numbers that the format has: its columns are as long
// as they were and at right angles.
TEST(Fp4Kernels, TheTransformIsOrthogonal) {
  constexpr std::int64_t kSide = 16;
  Floats identity(kSide * kSide, 0.0F);
  for (std::int64_t i = 0; i < kSide; ++i) identity[at(i * kSide + i)] = 1;
  Fp8Layout l = four_bits(true);
  l.rows = l.cols = kSide;
  const Fp4Copy c = cast4(l, identity, 1);
  l.inverse = &c.inverse;
  Floats h(identity.size());
  make_cpu_device(1)->fp8_widen(l, {c.bytes.data(), DType::e2m1}, h.data());
  for (std::int64_t a = 0; a < kSide; ++a)
    for (std::int64_t b = 0; b < kSide; ++b) {
      double dot = 0;
      for (std::int64_t r = 0; r < kSide; ++r)
        dot += static_cast<double>(h[at(r * kSide + a)]) * static_cast<double>(h[at(r * kSide + b)]);
      EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << a << " " << b;
    }
}

// (H D a)^T (H D b) = a^T b: what rounding leaves of a product of transformed copies is near it, and far from it where
// one alone is transformed.
TEST(Fp4Kernels, ProductsOfTransformedCopiesAreThoseOfTheNumbers) {
  const Floats a = Random(9).normal(kFp4Rows * kFp4Cols), b = Random(10).normal(kFp4Rows * kFp4Cols);
  Floats mixed(a.size());  // so that the product is not of noise alone
  for (std::size_t i = 0; i < a.size(); ++i) mixed[i] = a[i] + 0.3F * b[i];
  const auto read = [](const Floats& x, bool square) {
    Fp8Layout l = four_bits(true, square);
    const Fp4Copy c = cast4(l, x, largest_of_all(x));
    l.inverse = &c.inverse;
    Floats wide(x.size());
    make_cpu_device(1)->fp8_widen(l, {c.bytes.data(), DType::e2m1}, wide.data());
    return wide;
  };
  const auto trace = [](const Floats& x, const Floats& y) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    return sum;
  };
  const double exact = trace(a, mixed);
  EXPECT_NEAR(trace(read(a, false), read(mixed, false)) / exact, 1, 0.03);
  EXPECT_GT(std::abs(trace(read(a, false), read(mixed, true)) / exact - 1), 0.3);
}

TEST(Fp4Kernels, ByChanceTheMeanIsTheNumberAndADrawIsTheSameAgain) {
  const Floats x = Random(11).normal(kFp4Rows * kFp4Cols);
  Fp8Layout l = four_bits(false);
  l.at_random = true;
  Floats wide(x.size());
  std::vector<double> sum(x.size(), 0);
  constexpr int kDraws = 400;
  for (int draw = 0; draw < kDraws; ++draw) {
    l.draw = static_cast<std::uint64_t>(draw);
    const Fp4Copy c = cast4(l, x, largest_of_all(x));
    if (draw == 7) {
      EXPECT_EQ(cast4(l, x, largest_of_all(x), 3).bytes, c.bytes);
    }
    Fp8Layout of = four_bits(false);
    of.inverse = &c.inverse;
    make_cpu_device(1)->fp8_widen(of, {c.bytes.data(), DType::e2m1}, wide.data());
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += static_cast<double>(wide[i]);
  }
  // The largest of a block may lie above six of its rounded scales, and saturates.
  double off = 0;
  for (std::size_t i = 0; i < x.size(); ++i) off += std::abs(sum[i] / kDraws - static_cast<double>(x[i]));
  EXPECT_LT(off / static_cast<double>(x.size()), 0.02);
}

}  // namespace
}  // namespace rehearse::kernels
