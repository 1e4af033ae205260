// Quantiles lie where numpy's do: quantile([1, 2, 4], [0, 0.25, 0.5, 1]) is [1, 1.5, 2, 4].
#include "sim/base/quantile.h"

#include <gtest/gtest.h>

#include "sim/base/check.h"

namespace rehearse {
namespace {

TEST(Quantile, LiesBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 2}, 0.25), 1.5);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(quantile({10, 20}, 0.1), 11);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.9), 7);
  EXPECT_THROW(quantile({}, 0.5), InternalError);
  EXPECT_THROW(quantile({1}, 1.5), InternalError);
}

TEST(Quantile, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(median({9, 1, 3, 4}), 3.5);
  EXPECT_DOUBLE_EQ(median({3, 1, 9}), 3);
}

TEST(Quantile, AtRankIsOneOfTheSamples) {
  const std::vector<double> sorted = {1, 2, 4, 8};
  EXPECT_EQ(at_rank(sorted, 0.6, Rank::below), 2) << "of place 1.8";
  EXPECT_EQ(at_rank(sorted, 0.6, Rank::nearest), 4);
  EXPECT_EQ(at_rank(sorted, 1, Rank::below), 8);
  EXPECT_THROW(at_rank({}, 0.5, Rank::below), InternalError);
}

}  // namespace
}  // namespace rehearse
