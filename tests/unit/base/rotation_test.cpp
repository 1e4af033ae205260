// Angles of rotated positions against the published definitions, worked out by hand for a few pairs.
#include "sim/base/rotation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rehearse {
namespace {

constexpr double kTau = 6.283185307179586;

TEST(Rotation, ByItsBaseAlone) {
  const Rotation plain;
  EXPECT_DOUBLE_EQ(plain.frequency(0, 128), 1);
  EXPECT_DOUBLE_EQ(plain.frequency(32, 128), 0.01);
  EXPECT_DOUBLE_EQ(plain.magnitude(), 1);
  EXPECT_DOUBLE_EQ((Rotation{.base = 1e6, .scaling = RotationScaling::linear, .factor = 8}.frequency(64, 256)),
                   1 / std::sqrt(1e6) / 8)
      << "Gemma 3";
}

// Llama 3.1: base 500,000, factor 8, low 1, high 4, 8,192 positions: waves below 2,048 stay, those above 8,192 are 8
// times as long.
TEST(Rotation, Llama3DividesLongWavesAlone) {
  const Rotation r{.base = 5e5, .scaling = RotationScaling::llama3, .factor = 8};
  for (std::int64_t pair = 0; pair < 64; ++pair) {
    const double own = std::pow(5e5, -static_cast<double>(pair) / 64), wave = kTau / own;
    if (wave < 2048)
      EXPECT_DOUBLE_EQ(r.frequency(pair, 128), own) << pair;
    else if (wave > 8192)
      EXPECT_DOUBLE_EQ(r.frequency(pair, 128), own / 8) << pair;
    else
      EXPECT_NEAR(r.frequency(pair, 128), own * (1.0 / 8 + 7.0 / 8 * (8192 / wave - 1) / 3), 1e-12) << pair;
  }
}

// Qwen2.5's: base 1e6, factor 4, 32,768 positions, 128 columns: 32 turns are of pair 23.5, one of 39.6.
TEST(Rotation, YarnGoesFromPairToPair) {
  const Rotation r{.base = 1e6, .scaling = RotationScaling::yarn, .factor = 4, .trained = 32768};
  const auto own = [](std::int64_t pair) { return std::pow(1e6, -static_cast<double>(pair) / 64); };
  EXPECT_DOUBLE_EQ(r.frequency(23, 128), own(23));
  EXPECT_DOUBLE_EQ(r.frequency(40, 128), own(40) / 4);
  EXPECT_NEAR(r.frequency(24, 128) / own(24), 1 - 1.0 / 17 * 3 / 4, 1e-12);
  EXPECT_NEAR(r.frequency(39, 128) / own(39), 1 - 16.0 / 17 * 3 / 4, 1e-12);
  EXPECT_NEAR(r.magnitude(), 1.1386294361, 1e-9);
}

}  // namespace
}  // namespace rehearse
