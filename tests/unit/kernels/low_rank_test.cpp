// Kernels of PowerSGD and of Deep Gradient Compression alone.
#include <algorithm>
#include <cmath>

#include "sim/base/gradient_code.h"
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

// Dot product of two columns of x [rows, rank].
double column_dot(const Floats& x, std::size_t rank, std::size_t a, std::size_t b) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size() / rank; ++i)
    sum += static_cast<double>(x[i * rank + a]) * static_cast<double>(x[i * rank + b]);
  return sum;
}

void expect_orthonormal(const Floats& x, std::size_t rank, const char* what) {
  for (std::size_t a = 0; a < rank; ++a)
    for (std::size_t b = 0; b <= a; ++b) EXPECT_NEAR(column_dot(x, rank, a, b), a == b ? 1 : 0, 1e-6) << what;
}

// (3, 4) of length 5; what (1, 0) has besides it is (16, -12) / 25.
TEST(Orthogonalise, TwoColumnsByHand) {
  const auto device = make_cpu_device(1);
  Floats x = {3, 1, 4, 0};
  device->orthogonalise(2, 2, 0, x.data());
  const Floats expected = {0.6F, 0.8F, 0.8F, -0.6F};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(x[i]), static_cast<double>(expected[i]), 1e-6);
  Floats one = {3, 4};
  device->orthogonalise(2, 1, 5, one.data());
  EXPECT_NEAR(static_cast<double>(one[0]), 0.3, 1e-6) << "divided by 5 + 5";
}

TEST(Orthogonalise, SpansWhatWasSpanned) {
  const auto device = make_cpu_device(2);
  const Floats before = Random(3).normal(50 * 4);
  Floats x = before;
  device->orthogonalise(50, 4, 0, x.data());
  expect_orthonormal(x, 4, "normal numbers");
  for (std::size_t k = 0; k < 4; ++k) {  // of each column nothing lies outside
    double whole = 0, within = 0;
    for (std::size_t i = 0; i < 50; ++i) whole += std::pow(static_cast<double>(before[i * 4 + k]), 2);
    for (std::size_t b = 0; b <= k; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < 50; ++i)
        dot += static_cast<double>(before[i * 4 + k]) * static_cast<double>(x[i * 4 + b]);
      within += dot * dot;
    }
    EXPECT_NEAR(within / whole, 1, 1e-5) << k;
  }
}

TEST(Orthogonalise, WhatIsMissingIsMadeUp) {
  const auto device = make_cpu_device(1);
  Floats zeros(6 * 3, 0.0F), same(6 * 3, 1.0F), near(6 * 3);
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t k = 0; k < 3; ++k) near[i * 3 + k] = 1 + (i == k ? 1e-4F : 0);
  device->orthogonalise(6, 3, 0, zeros.data());
  expect_orthonormal(zeros, 3, "zeros");
  device->orthogonalise(6, 3, 0, same.data());
  expect_orthonormal(same, 3, "equal columns");
  device->orthogonalise(6, 3, 0, near.data());
  expect_orthonormal(near, 3, "nearly equal columns");
  Floats spoilt = {1, std::numeric_limits<float>::quiet_NaN()};
  device->orthogonalise(2, 1, 0, spoilt.data());
  EXPECT_TRUE(std::isnan(spoilt[0])) << "what is no number stays none";
}

TEST(KeepRest, IsOurGradientsLessOurShareOfTheSum) {
  const auto device = make_cpu_device(1);
  const Floats sum = {4, 8, 12, 16};
  Floats residual = {5, 5, 5, 5};
  const std::vector<Range> rest = {{1, 2}};
  device->keep_rest(4, 4, rest, sum.data(), residual.data());
  EXPECT_EQ(residual, (Floats{4, 0, 0, 1}));
}

// u = 0.5 u + 2 g = (2.5, 4, 0.5, -7), v = v + u = (3.5, 4, 0.5, -8): two of four go, with their momentum.
TEST(CompressCorrected, ByHand) {
  const auto device = make_cpu_device(1);
  GradientCode code;
  code.elements = 4, code.kept = 2, code.chunk = 8, code.sent = GradientCode::Sent::largest;
  const Floats g = {1, 2, 0, -3};
  Floats u = {1, 0, 1, -2}, v = {1, 0, 0, -1};
  const float factor = 2;
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(code.bytes()));
  device->compress_corrected(code, {}, 0.5, g.data(), &factor, u.data(), v.data(), packed.data());
  EXPECT_EQ(u, (Floats{2.5F, 0, 0.5F, 0}));
  EXPECT_EQ(v, (Floats{3.5F, 0, 0.5F, 0}));
  Floats sent(4);
  device->decompress(code, {}, 1, packed.data(), sent.data());
  EXPECT_EQ(sent, (Floats{0, 4, 0, -8}));
}

}  // namespace
}  // namespace rehearse::kernels
