// The 16-bit types against their definition, in double precision.
#include "sim/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace rehearse {
namespace {

struct Format {
  DType type;
  int mantissa, smallest;  // bits stored; exponent of the smallest normal number
  double largest;
};
constexpr Format kFormats[] = {{DType::bf16, 7, -126, 3.3895313892515355e38}, {DType::f16, 10, -14, 65504}};

float wide(DType type, std::uint16_t x) {
  return type == DType::bf16 ? float_of_bf16(x) : float_of_f16(x);
}
std::uint16_t narrow(DType type, float x) {
  return type == DType::bf16 ? bf16_of_float(x) : f16_of_float(x);
}

// Every pattern is a sign, an exponent and a mantissa, and comes back as itself.
TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (const Format& f : kFormats)
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto x = static_cast<std::uint16_t>(bits);
      const int exponent = (bits & 0x7FFF) >> f.mantissa, mantissa = static_cast<int>(bits) & ((1 << f.mantissa) - 1);
      const int last = (1 << (15 - f.mantissa)) - 1;
      const double sign = bits & 0x8000 ? -1 : 1;
      if (exponent == last && mantissa != 0) {
        EXPECT_TRUE(std::isnan(wide(f.type, x)));
        EXPECT_TRUE(std::isnan(wide(f.type, narrow(f.type, wide(f.type, x)))));
        continue;
      }
      const double expected = exponent == last ? std::numeric_limits<double>::infinity()
                              : exponent == 0
                                  ? std::ldexp(mantissa, f.smallest - f.mantissa)
                                  : std::ldexp(mantissa + (1 << f.mantissa), exponent - 1 + f.smallest - f.mantissa);
      ASSERT_EQ(static_cast<double>(wide(f.type, x)), sign * expected) << bits;
      ASSERT_EQ(narrow(f.type, wide(f.type, x)), x) << bits;
    }
}

// Between neighbours: below, at and above the middle, where the even one wins; beyond the largest, infinity from half a
// step on.
TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (const Format& f : kFormats) {
    const auto end = static_cast<std::uint16_t>(narrow(f.type, static_cast<float>(f.largest)) + 1);
    for (std::uint16_t x = 0; x + 1 < end; ++x) {
      const auto next = static_cast<std::uint16_t>(x + 1);
      const float middle = static_cast<float>((static_cast<double>(wide(f.type, x)) + wide(f.type, next)) / 2);
      ASSERT_EQ(narrow(f.type, middle), x % 2 == 0 ? x : next) << x;
      ASSERT_EQ(narrow(f.type, std::nextafter(middle, 0.0F)), x) << x;
      ASSERT_EQ(narrow(f.type, std::nextafter(middle, std::numeric_limits<float>::infinity())), next) << x;
      ASSERT_EQ(narrow(f.type, -middle), 0x8000 | (x % 2 == 0 ? x : next)) << x;
    }
    EXPECT_EQ(wide(f.type, static_cast<std::uint16_t>(end - 1)), static_cast<float>(f.largest));
    const double half_step = std::ldexp(f.largest, -f.mantissa - 1) / (2 - std::ldexp(1, -f.mantissa));
    const auto bound = static_cast<float>(f.largest + half_step);
    EXPECT_TRUE(std::isinf(wide(f.type, narrow(f.type, bound))));
    EXPECT_FALSE(std::isinf(wide(f.type, narrow(f.type, std::nextafter(bound, 0.0F)))));
    EXPECT_TRUE(std::isinf(wide(f.type, narrow(f.type, -std::numeric_limits<float>::infinity()))));
  }
}

TEST(Half, ArraysAreTheirElements) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<float> x(37), y(37);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.25F - 3;  // exact in all
    std::vector<std::byte> stored(37 * static_cast<std::size_t>(size_of(type)));
    from_float(type, x.data(), 37, stored.data());
    to_float(type, stored.data(), 37, y.data());
    EXPECT_EQ(x, y);
  }
}

}  // namespace
}  // namespace rehearse
