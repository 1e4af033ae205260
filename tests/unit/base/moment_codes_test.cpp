// The 8-bit codes of moments: their values against bitsandbytes' way of making them, in double precision; every code
// there and back; the nearest code by looking at all of them.
#include "sim/base/moment_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace rehearse {
namespace {

// bitsandbytes' create_dynamic_map: of each of seven decades the middles of equal intervals from 0.1 to 1, 2^i of them,
// or twice as many without a sign; their negatives; 0 and 1; sorted.
std::vector<double> dynamic_map(bool is_signed) {
  std::vector<double> data = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = (1 << i) * (is_signed ? 1 : 2);
    for (int k = 0; k < items; ++k) {
      const double low = 0.1 + 0.9 * k / items, high = 0.1 + 0.9 * (k + 1) / items;
      const double value = std::pow(10, i - 6) * (low + high) / 2;
      data.push_back(value);
      if (is_signed) data.push_back(-value);
    }
  }
  std::sort(data.begin(), data.end());
  return data;
}

const MomentCodes& codes_of(bool is_signed) {
  return is_signed ? signed_moment_codes() : unsigned_moment_codes();
}

TEST(MomentCodes, AreBitsandbytesDynamicMap) {
  for (const bool is_signed : {true, false}) {
    const std::vector<double> map = dynamic_map(is_signed);
    ASSERT_EQ(map.size(), 256U);
    for (std::size_t k = 0; k < 256; ++k) {
      EXPECT_FLOAT_EQ(codes_of(is_signed).values[k], static_cast<float>(map[k])) << is_signed << " " << k;
      if (k > 0) {
        EXPECT_LT(codes_of(is_signed).values[k - 1], codes_of(is_signed).values[k]);
      }
    }
  }
  EXPECT_EQ(signed_moment_codes().values[127], 0);
  EXPECT_EQ(unsigned_moment_codes().values[0], 0);
  // By hand: the least, and the largest below 1.
  EXPECT_FLOAT_EQ(signed_moment_codes().values[128], 0.55e-6F);
  EXPECT_FLOAT_EQ(unsigned_moment_codes().values[1], 0.325e-6F);
  EXPECT_FLOAT_EQ(signed_moment_codes().values[254], 1 - 0.45F / 64);
  EXPECT_FLOAT_EQ(unsigned_moment_codes().values[254], 1 - 0.45F / 128);
}

TEST(MomentCodes, EveryCodeComesBack) {
  for (const bool is_signed : {true, false})
    for (const float largest : {1.0F, 3e-9F, 70000.0F}) {
      std::array<std::uint8_t, 256> codes{}, back{};
      for (std::size_t k = 0; k < 256; ++k) codes[k] = static_cast<std::uint8_t>(k);
      std::array<float, 256> x{};
      decode_moments(is_signed, codes.data(), largest, 256, x.data());
      for (std::size_t k = 0; k < 256; ++k) EXPECT_EQ(x[k], codes_of(is_signed).values[k] * largest);
      float found = 0;
      encode_moments(is_signed, x.data(), 256, back.data(), found);
      EXPECT_EQ(found, largest);
      EXPECT_EQ(back, codes);
    }
}

// The nearest of all, the lower one of two that are as near; below 0 not 0.
int nearest(bool is_signed, float x) {
  const auto& values = codes_of(is_signed).values;
  int best = 0;
  for (int k = 1; k < 256; ++k) {
    const double middle = (values[static_cast<std::size_t>(k)] + values[static_cast<std::size_t>(k - 1)]) * 0.5F;
    if (x > middle) best = k;
  }
  return is_signed && x < 0 && best == 127 ? 126 : best;
}

TEST(MomentCodes, EveryNumberTakesTheNearest) {
  std::mt19937_64 random(7);
  for (const bool is_signed : {true, false}) {
    std::vector<float> all = {0, 1, 1e-38F, 1e-45F, 1e-12F};
    for (const float middle : codes_of(is_signed).middles)
      for (const float x : {middle, std::nextafter(middle, 2.0F), std::nextafter(middle, -2.0F)})
        all.push_back(std::clamp(x, is_signed ? -1.0F : 0.0F, 1.0F));
    for (int i = 0; i < 20000; ++i)
      all.push_back(static_cast<float>(std::pow(10.0, -9 * std::generate_canonical<double, 53>(random))));
    for (const float x : all)
      for (const float sign : {1.0F, -1.0F}) {
        if (!is_signed && sign < 0) continue;
        const std::array<float, 2> block = {1, sign * x};
        std::array<std::uint8_t, 2> codes{};
        float largest = 0;
        encode_moments(is_signed, block.data(), 2, codes.data(), largest);
        ASSERT_EQ(codes[0], 255);
        ASSERT_EQ(int{codes[1]}, nearest(is_signed, block[1])) << is_signed << " " << block[1];
      }
  }
}

TEST(MomentCodes, BlocksOfZerosAndOfNoNumbers) {
  for (const bool is_signed : {true, false}) {
    std::array<float, 3> x{};
    std::array<std::uint8_t, 3> codes{9, 9, 9};
    float largest = 5;
    encode_moments(is_signed, x.data(), 3, codes.data(), largest);
    EXPECT_EQ(largest, 0);
    decode_moments(is_signed, codes.data(), largest, 3, x.data());
    for (const float v : x) EXPECT_EQ(v, 0);
    for (const std::array<float, 3>& bad :
         {std::array<float, 3>{1, std::nanf(""), 2}, {1, 2, std::numeric_limits<float>::infinity()}}) {
      encode_moments(is_signed, bad.data(), 3, codes.data(), largest);
      decode_moments(is_signed, codes.data(), largest, 3, x.data());
      EXPECT_FALSE(std::isfinite(largest));
      EXPECT_TRUE(std::any_of(x.begin(), x.end(), [](float v) { return !std::isfinite(v); }));
    }
  }
}

// What is near 0 keeps its sign, which the first moment's is.
TEST(MomentCodes, SmallNegativesStayNegative) {
  const std::array<float, 3> x = {1, -1e-9F, 1e-9F};
  std::array<std::uint8_t, 3> codes{};
  std::array<float, 3> back{};
  float largest = 0;
  encode_moments(true, x.data(), 3, codes.data(), largest);
  decode_moments(true, codes.data(), largest, 3, back.data());
  EXPECT_FLOAT_EQ(back[1], -0.55e-6F);
  EXPECT_EQ(back[2], 0);
}

}  // namespace
}  // namespace rehearse
