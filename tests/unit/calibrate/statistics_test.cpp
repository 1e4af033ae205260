// What is kept of samples, and how a budget is split.
#include "calibrate/statistics.h"

#include <gtest/gtest.h>

#include <thread>

#include "calibrate/budget.h"
#include "calibrate/kernel_times.h"

namespace rehearse::calibrate {
namespace {

TEST(Statistics, ASummaryIsOfAllSamples) {
  const Summary s = summarize({5, 1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(s.p10_s, 1.4);
  EXPECT_DOUBLE_EQ(s.p50_s, 3);
  EXPECT_DOUBLE_EQ(s.p90_s, 4.6);
  EXPECT_DOUBLE_EQ(s.mean_s, 3);
  EXPECT_EQ(s.repetitions, 5);
}

TEST(KernelTimes, TheMeanIsOfTheOccurrencesMedians) {
  KernelTimes times;
  const KernelKey key{"copy", "elements=4", program::DType::f32, 1, 2};
  times.add(key, 0, 32, {1, 2, 900});  // one interrupted repetition does not count
  times.add(key, 0, 32, {6, 6, 6});
  times.add({"copy", "elements=4", program::DType::f32, 1, 1}, 0, 32, {5});
  const auto all = times.all(cost::Origin::program);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].busy, 1);
  EXPECT_EQ(all[1].busy, 2);
  EXPECT_DOUBLE_EQ(all[1].mean, 4);
  EXPECT_DOUBLE_EQ(all[1].time.p50, 6);
  EXPECT_EQ(all[1].repetitions, 6);
  EXPECT_DOUBLE_EQ(all[1].bytes, 32);
  EXPECT_EQ(all[1].origin, cost::Origin::program);
  EXPECT_TRUE(times.contains(key));
  EXPECT_FALSE(times.contains({"copy", "elements=4", program::DType::f32, 2, 2}));
}

TEST(Budget, APartGetsItsWeightOfWhatIsLeft) {
  const std::vector<double> weights = {1, 2, 1};
  EXPECT_DOUBLE_EQ(share_of(weights, 0, 8), 2);
  EXPECT_DOUBLE_EQ(share_of(weights, 1, 6), 4);
  EXPECT_DOUBLE_EQ(share_of(weights, 1, 9), 6) << "what the first did not use goes to the others";
  EXPECT_DOUBLE_EQ(share_of(weights, 2, 0.5), 0.5) << "the last gets all";
  EXPECT_DOUBLE_EQ(share_of(weights, 1, -3), 0) << "nothing is left";
  EXPECT_DOUBLE_EQ(share_of({0, 0}, 0, 5), 0);
}

TEST(Budget, APartNeverOutlivesTheWhole) {
  const Budget whole(0.02, {});
  const Budget part = whole.part(100);
  EXPECT_LE(part.left(), 0.02);
  EXPECT_LE(whole.part(0.001).left(), 0.001);
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  EXPECT_TRUE(whole.spent());
  EXPECT_TRUE(part.spent());
}

TEST(Budget, PartsPollAsTheWholeDoes) {
  int polls = 0;
  const Budget whole(1, [&] { ++polls; });
  whole.part(0.5).poll();
  EXPECT_EQ(polls, 1);
  Budget(1, {}).poll();
}

}  // namespace
}  // namespace rehearse::calibrate
