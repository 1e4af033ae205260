// e2m1 against its definition, in double precision.
#include "sim/base/fp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rehearse {
namespace {

double defined(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa * 0.5, exponent - 1);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

TEST(Fp4, EveryCodeHasItsValueAndComesBack) {
  for (int code = 0; code < 16; ++code) {
    const float value = E2m1::widen(static_cast<std::uint8_t>(code));
    EXPECT_EQ(static_cast<double>(value), defined(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 8) << code;
    if (code == 8) continue;  // the other zero, whose sign comparisons do not see
    EXPECT_EQ(E2m1::narrow(value), code);
    for (const float chance : {0.0F, 0.5F, 0.999F}) EXPECT_EQ(E2m1::narrow_at_random(value, chance), code) << chance;
  }
}

TEST(Fp4, BetweenTwoNumbersTheNearerAndInTheMiddleTheEvenOne) {
  for (int code = 0; code < 7; ++code) {
    const auto low = static_cast<float>(defined(code)), high = static_cast<float>(defined(code + 1));
    const float middle = (low + high) / 2;
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(E2m1::narrow(middle), even) << middle;
    EXPECT_EQ(E2m1::narrow(std::nextafter(middle, 0.0F)), code) << middle;
    EXPECT_EQ(E2m1::narrow(std::nextafter(middle, 8.0F)), code + 1) << middle;
    if (middle > 0) {
      EXPECT_EQ(E2m1::narrow(-middle), even | 8) << middle;
    }
  }
}

TEST(Fp4, WhatIsTooLargeIsTheLargest) {
  for (const float x : {6.5F, 1e30F, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(E2m1::narrow(x), 7);
    EXPECT_EQ(E2m1::narrow(-x), 15);
    EXPECT_EQ(E2m1::narrow_at_random(x, 0.9F), 7);
  }
  EXPECT_EQ(E2m1::narrow(std::numeric_limits<float>::quiet_NaN()), 7);
}

// Over evenly spread chances the mean is the number itself.
TEST(Fp4, AtRandomTheMeanIsTheNumber) {
  constexpr int kChances = 1000;
  for (const float x : {0.1F, 0.3F, -0.7F, 1.2F, -2.9F, 3.3F, 5.1F, -5.9F}) {
    double sum = 0;
    for (int i = 0; i < kChances; ++i)
      sum += static_cast<double>(E2m1::widen(E2m1::narrow_at_random(x, (static_cast<float>(i) + 0.5F) / kChances)));
    EXPECT_NEAR(sum / kChances, static_cast<double>(x), 2.1 / kChances) << x;
  }
}

}  // namespace
}  // namespace rehearse
