// Every split of a parameter draws the numbers of the whole.
#include "execute/rank/initial_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "execute/rank/normal_draws.h"
#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

using program::Init;

program::Buffer parameter(std::vector<std::int64_t> whole, int tensor_dim, int parts) {
  program::Buffer b;
  b.name = "layer0.weight";
  b.shape = whole;
  if (tensor_dim >= 0) b.shape[static_cast<std::size_t>(tensor_dim)] /= parts;
  b.init = {Init::Kind::normal, 0.5, std::move(whole), tensor_dim};
  return b;
}

std::vector<float> drawn(const program::Buffer& b, int coordinate, std::int64_t first, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  draw_part(b, coordinate, 9, first, count, values.data());
  return values;
}

TEST(InitialValues, APartOfASplitParameterIsThatPartOfTheWhole) {
  const std::vector<float> whole = drawn(parameter({2, 6, 4}, -1, 1), 0, 0, 48);
  const program::Buffer split = parameter({2, 6, 4}, 1, 3);  // [2, 2, 4] a rank
  for (int coordinate = 0; coordinate < 3; ++coordinate) {
    const std::vector<float> part = drawn(split, coordinate, 0, 16);
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 2; ++b)
        for (int c = 0; c < 4; ++c)
          EXPECT_EQ(part[static_cast<std::size_t>(a * 8 + b * 4 + c)],
                    whole[static_cast<std::size_t>(a * 24 + (coordinate * 2 + b) * 4 + c)]);
  }
}

TEST(InitialValues, AnyRangeOfAPartIsThatRange) {
  const program::Buffer split = parameter({2, 6, 4}, 1, 3);
  const std::vector<float> part = drawn(split, 1, 0, 16), range = drawn(split, 1, 5, 7);
  for (std::size_t i = 0; i < range.size(); ++i) EXPECT_EQ(range[i], part[i + 5]);
}

TEST(InitialValues, RowsDoNotDependOnHowManyAreAddedAsPadding) {
  const std::vector<float> table = drawn(parameter({10, 8}, 0, 1), 0, 0, 80);
  const std::vector<float> padded = drawn(parameter({16, 8}, 0, 1), 0, 0, 80);
  EXPECT_EQ(table, padded);
}

TEST(InitialValues, NormalValuesHaveTheirDeviationAndUniformOnesTheirWidth) {
  constexpr std::int64_t kCount = 100'000;
  std::vector<float> normal(kCount), uniform(kCount);
  draw_values(Init::Kind::normal, 0.02, "a", 1, 0, kCount, normal.data());
  draw_values(Init::Kind::uniform, 0.5, "a", 1, 0, kCount, uniform.data());
  double sum = 0, squares = 0, highest = 0, mean = 0;
  for (std::size_t i = 0; i < normal.size(); ++i) {
    sum += normal[i];
    squares += std::pow(normal[i], 2);
    highest = std::max(highest, std::abs(double{uniform[i]}));
    mean += uniform[i] / static_cast<double>(kCount);
  }
  EXPECT_NEAR(sum / kCount, 0, 4 * 0.02 / std::sqrt(kCount));  // four deviations of the mean
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.02, 0.02 * 0.01);
  EXPECT_LE(highest, 0.5);
  EXPECT_GT(highest, 0.499);
  EXPECT_NEAR(mean, 0, 0.004);
}

// The definition, one number at a time with the C library.
TEST(InitialValues, NormalValuesAreThoseOfTheCLibraryInEveryBit) {
  constexpr std::int64_t kCount = 1'000'000;
  for (const double scale : {0.02, 1.0, -3.0}) {
    std::vector<float> values(kCount);
    normal_values(12345, 0xFFFFFF00, kCount, scale, values.data());  // past 2^32
    int different = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto words = Philox::draw(12345, 0xFFFFFF00 + static_cast<std::uint64_t>(i));
      const double u = (words[0] + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * (words[1] * 0x1p-32);
      const auto expected = static_cast<float>(scale * std::sqrt(-2 * std::log(u)) * std::cos(angle));
      different +=
          std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(i)]) != std::bit_cast<std::uint32_t>(expected);
    }
    EXPECT_EQ(different, 0) << scale;
  }
}

TEST(InitialValues, NamesAndSeedsDrawDifferently) {
  float a = 0, b = 0, c = 0;
  draw_values(Init::Kind::normal, 1, "a", 1, 0, 1, &a);
  draw_values(Init::Kind::normal, 1, "b", 1, 0, 1, &b);
  draw_values(Init::Kind::normal, 1, "a", 2, 0, 1, &c);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

}  // namespace
}  // namespace rehearse::execute
