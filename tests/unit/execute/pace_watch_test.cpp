// The pace of a machine from made-up probes, and how two paces compare.
#include "execute/pace_watch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rehearse::execute {
namespace {

TEST(Pace, IsTheMedianOfItsProbes) {
  Pace p{.taken = 0.25, .cores = 2, .wanted = 2};
  add_probes({{{10e-3, 5e-3}, 0, 0}, {{12e-3, 6e-3}, 1, 0}, {{30e-3, 5e-3}, 0.1, 0}}, p);
  EXPECT_EQ(p.probes, 3);
  EXPECT_DOUBLE_EQ(p.product_s, 12e-3);
  EXPECT_DOUBLE_EQ(p.copy_s, 5e-3);
  EXPECT_EQ(p.spread, 0) << "only one lap is long enough";
}

// Two cores wanted: of laps with nothing and with half of the cores taken the second is twice as slow.
TEST(Pace, SpreadIsThatOfLapsWithWhatWasTaken) {
  const ProbeTimes same{10e-3, 5e-3};
  Pace p{.cores = 2, .wanted = 2};
  add_probes({{same, 1, 0}, {same, 1, 0.5}}, p);
  EXPECT_NEAR(p.spread, std::log(2) / std::sqrt(2), 1e-12);
}

TEST(Pace, CrowdingIsWhatOursLackOfTheCoresTheyWant) {
  const auto by_load = [](double taken, double wanted) {
    return Pace{.taken = taken, .cores = 2, .wanted = wanted}.crowding_by_load();
  };
  EXPECT_DOUBLE_EQ(by_load(0, 2), 1);
  EXPECT_DOUBLE_EQ(by_load(0.5, 2), 2);
  EXPECT_DOUBLE_EQ(by_load(0.5, 1), 1) << "one core is left, and one is wanted";
  EXPECT_DOUBLE_EQ(by_load(0.75, 1), 2);
  EXPECT_DOUBLE_EQ(by_load(0.5, 8), 2) << "eight of others beside eight of ours";
}

TEST(Pace, SlowdownIsOfCoresAndOfCrowds) {
  Pace calibrated, measured;
  EXPECT_EQ(slowdown(measured, calibrated), 1) << "nothing is known";
  calibrated = {.probes = 2, .product_s = 10e-3, .copy_s = 10e-3, .cores = 2, .wanted = 2};
  measured = {.probes = 2, .product_s = 14e-3, .copy_s = 10e-3, .taken = 0.2, .cores = 2, .wanted = 2};
  EXPECT_DOUBLE_EQ(slowdown(measured, calibrated), 1.2 * 1.25);
  EXPECT_DOUBLE_EQ(slowdown(calibrated, measured), 1 / 1.5);
  // What threads waited says more, where both know it and ours do not wait for one another.
  calibrated.waited = 0.1, measured.waited = 0.4;
  EXPECT_DOUBLE_EQ(slowdown(measured, calibrated), 1.2 * 0.9 / 0.6);
  // Half a thread of others alongside four of ours, nobody besides the two that were calibrated.
  measured.wanted = 4, measured.taken = 0.5 / 4.5;
  EXPECT_DOUBLE_EQ(slowdown(measured, calibrated), 1.2 * 4.5 / 4);
  // The same two of others: of the cores they have half beside two of ours, a third beside four. That is no drift.
  calibrated.taken = 0.5, measured.taken = 1.0 / 3;
  EXPECT_DOUBLE_EQ(slowdown(measured, calibrated), 1.2);
}

TEST(ThreadWaits, CountEveryThreadFromItsFirstLook) {
  EXPECT_DOUBLE_EQ(parse_schedstat("3000000000 500000000 17\n").ran, 3);
  EXPECT_DOUBLE_EQ(parse_schedstat("3000000000 500000000 17\n").waited, 0.5);
  EXPECT_EQ(parse_schedstat("no numbers").ran, 0);
  // Whatever this process does itself meanwhile is milliseconds against a thousand seconds.
  ThreadWaits waits;
  waits.add("a", {100, 0});
  waits.add("a", {600, 100});
  waits.add("a", {100, 100});  // another thread of the same number
  EXPECT_NEAR(waits.waited(), 200.0 / 900, 1e-3);
}

TEST(Pace, AProbeTakesSomeTime) {
  const ProbeTimes p = probe_pace(2);
  EXPECT_GT(p.product_s, 0);
  EXPECT_GT(p.copy_s, 0);
}

}  // namespace
}  // namespace rehearse::execute
