// Times of sizes that were measured, that lie between them, and beyond them.
#include "sim/collective/transfer_table.h"

#include <gtest/gtest.h>

namespace rehearse::collective {
namespace {

TransferTable table(std::initializer_list<std::pair<std::int64_t, double>> points) {
  TransferTable t;
  for (const auto& [bytes, seconds] : points) t.add(bytes, {seconds * 0.9, seconds, seconds * 1.2});
  return t;
}

TEST(TransferTable, MeasuredSizesAreExact) {
  const TransferTable::Answer answer = table({{1000, 2e-6}, {8000, 5e-6}}).at(8000);
  EXPECT_DOUBLE_EQ(answer.seconds, 5e-6);
  EXPECT_DOUBLE_EQ(answer.low, 0.9);
  EXPECT_DOUBLE_EQ(answer.high, 1.2);
  EXPECT_EQ(answer.coverage, Coverage::exact);
}

TEST(TransferTable, BetweenSizesInLogarithms) {
  const TransferTable::Answer answer = table({{1000, 2e-6}, {4000, 8e-6}}).at(2000);
  EXPECT_NEAR(answer.seconds, 4e-6, 1e-15);
  EXPECT_EQ(answer.coverage, Coverage::interpolated);
}

TEST(TransferTable, BelowTheSmallestItsTime) {
  EXPECT_DOUBLE_EQ(table({{1000, 2e-6}, {4000, 8e-6}}).at(10).seconds, 2e-6);
}

TEST(TransferTable, AboveTheLargestWhatItAddsToHalfItsSize) {
  const TransferTable t = table({{1000, 2e-6}, {4000, 5e-6}, {8000, 9e-6}});
  EXPECT_NEAR(t.at(16000).seconds, 17e-6, 1e-15);
  EXPECT_EQ(t.at(16000).coverage, Coverage::extrapolated);
  EXPECT_NEAR(table({{8000, 9e-6}}).at(16000).seconds, 18e-6, 1e-15);
}

// 7,900 bytes were disturbed: with 8,000 bytes they would say that 100 bytes more save 40 us; disturbed the other way
// round, that they cost 40 us.
TEST(TransferTable, SizesCloseToEachOtherSayNothingOfTheNext) {
  EXPECT_NEAR(table({{4000, 5e-6}, {7900, 50e-6}, {8000, 9e-6}}).at(16000).seconds, 17e-6, 1e-15);
  EXPECT_NEAR(table({{4000, 5e-6}, {7900, 9e-6}, {8000, 49e-6}}).at(16000).seconds, 137e-6, 1e-15);
}

}  // namespace
}  // namespace rehearse::collective
