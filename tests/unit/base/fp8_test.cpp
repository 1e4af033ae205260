// The 8-bit types against their definition, in double precision: a sign, an exponent, a mantissa.
#include "sim/base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

namespace rehearse {
namespace {

struct Fp8Format {
  DType type;
  int mantissa, bias;
  float (*widen)(std::uint8_t);
  std::uint8_t (*narrow)(float);
  double largest;
};
constexpr Fp8Format kFp8Formats[] = {{DType::e4m3, 3, 7, E4m3::widen, E4m3::narrow, 448},
                                     {DType::e5m2, 2, 15, E5m2::widen, E5m2::narrow, 57344}};

// What a code stands for; none: not a number.
std::optional<double> defined(const Fp8Format& f, int code) {
  const int exponent = (code & 0x7F) >> f.mantissa, mantissa = code & ((1 << f.mantissa) - 1);
  const double sign = code & 0x80 ? -1 : 1;
  if (f.type == DType::e4m3 && (code & 0x7F) == 0x7F) return {};
  if (f.type == DType::e5m2 && exponent == 31) {
    if (mantissa != 0) return {};
    return sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = mantissa / std::ldexp(1, f.mantissa);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1 + fraction, exponent - f.bias));
}

TEST(Fp8Types, EveryCodeHasItsValueAndComesBack) {
  for (const Fp8Format& f : kFp8Formats)
    for (int code = 0; code < 256; ++code) {
      const auto x = static_cast<std::uint8_t>(code);
      const float value = f.widen(x);
      const std::optional<double> expected = defined(f, code);
      if (!expected) {
        EXPECT_TRUE(std::isnan(value)) << code;
        EXPECT_TRUE(std::isnan(f.widen(f.narrow(value)))) << code;
        continue;
      }
      EXPECT_EQ(static_cast<double>(value), *expected) << name_of(f.type) << " " << code;
      EXPECT_EQ(std::signbit(value), code >= 128);
      if (std::isinf(*expected)) continue;
      EXPECT_EQ(f.narrow(value), x) << name_of(f.type) << " " << code;
    }
}

TEST(Fp8Types, TheLargestNumberIsTheFormats) {
  for (const Fp8Format& f : kFp8Formats) {
    double most = 0;
    for (int code = 0; code < 256; ++code)
      if (const auto value = defined(f, code); value && std::isfinite(*value)) most = std::max(most, *value);
    EXPECT_EQ(most, f.largest);
    EXPECT_EQ(static_cast<double>(largest_of(f.type)), f.largest);
  }
}

// Between two neighbours, subnormal ones with them, halves go to the even code and all else to the nearer one.
TEST(Fp8Types, NumbersBetweenGoToTheNearerAndHalvesToTheEvenCode) {
  for (const Fp8Format& f : kFp8Formats) {
    int pairs = 0;
    for (int code = 0; code < 127; ++code) {
      const auto low = defined(f, code), high = defined(f, code + 1);
      if (!low || !high || !std::isfinite(*high)) continue;
      ++pairs;
      const int even = code % 2 == 0 ? code : code + 1;
      for (const int sign : {0, 0x80}) {
        const float s = sign == 0 ? 1.0F : -1.0F, middle = static_cast<float>((*low + *high) / 2);
        ASSERT_EQ(static_cast<double>(middle), (*low + *high) / 2);
        EXPECT_EQ(f.narrow(s * middle), even | sign) << name_of(f.type) << " " << code;
        EXPECT_EQ(f.narrow(s * std::nextafter(middle, 0.0F)), code | sign) << name_of(f.type) << " " << code;
        EXPECT_EQ(f.narrow(s * std::nextafter(middle, 1e9F)), (code + 1) | sign) << name_of(f.type) << " " << code;
      }
    }
    EXPECT_EQ(pairs, f.type == DType::e4m3 ? 126 : 123);
  }
}

TEST(Fp8Types, WhatIsTooLargeSaturatesAndNansStay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Fp8Format& f : kFp8Formats) {
    const auto largest = static_cast<float>(f.largest);
    const std::uint8_t most = f.narrow(largest);
    for (const float x : {std::nextafter(largest, kInfinity), largest * 1.25F, largest * 100,
                          std::numeric_limits<float>::max(), kInfinity}) {
      EXPECT_EQ(f.narrow(x), most) << x;
      EXPECT_EQ(f.narrow(-x), most | 0x80) << x;
    }
    for (const std::uint32_t bits : {0x7FC00000U, 0x7F800001U, 0xFFC00000U, 0xFFFFFFFFU})
      EXPECT_TRUE(std::isnan(f.widen(f.narrow(std::bit_cast<float>(bits))))) << bits;
    EXPECT_EQ(f.narrow(1e-30F), 0);
    EXPECT_EQ(f.narrow(-1e-30F), 0x80);
    EXPECT_EQ(f.narrow(std::numeric_limits<float>::denorm_min()), 0);
  }
}

TEST(Fp8Types, ScalesOfEightBitsArePowersOfTwo) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(static_cast<double>(float_of_e8m0(static_cast<std::uint8_t>(code))), std::ldexp(1, code - 127)) << code;
  EXPECT_TRUE(std::isnan(float_of_e8m0(255)));
}

TEST(Fp8Types, AScaleOfEightBitsIsTheLeastThatIsNotBelow) {
  for (int code = 1; code < 254; ++code) {
    const float power = float_of_e8m0(static_cast<std::uint8_t>(code));
    EXPECT_EQ(e8m0_not_below(power), code);
    EXPECT_EQ(e8m0_not_below(std::nextafter(power, 1e38F)), code + 1);
    EXPECT_EQ(e8m0_not_below(power * 1.5F), code + 1);
  }
  EXPECT_EQ(e8m0_not_below(0), 0);
  EXPECT_EQ(e8m0_not_below(0x1p-127F), 0);
  EXPECT_EQ(e8m0_not_below(std::nextafter(0x1p-127F, 1.0F)), 1);
  EXPECT_EQ(e8m0_not_below(std::numeric_limits<float>::max()), 254);
  EXPECT_EQ(e8m0_not_below(std::numeric_limits<float>::infinity()), 254);
  EXPECT_EQ(e8m0_not_below(std::numeric_limits<float>::quiet_NaN()), 255);
}

}  // namespace
}  // namespace rehearse
