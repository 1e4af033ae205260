// What other programs took of the machine, from two readings of /proc/stat and this process' own time.
#include "execute/other_load.h"

#include <gtest/gtest.h>

namespace rehearse::execute {
namespace {

TEST(OtherLoad, ReadsWorkAndIdleOfAllCores) {
  // user 1000, nice 100, system 200, idle 5000, waiting 300, interrupts 10 + 20, stolen 70: of 6700 ticks 1400 worked
  const CpuTime t = parse_cpu_time("cpu  1000 100 200 5000 300 10 20 70 999 999\ncpu0 1 2 3\n", 100);
  EXPECT_DOUBLE_EQ(t.busy, 14);
  EXPECT_DOUBLE_EQ(t.all, 67);
  EXPECT_DOUBLE_EQ(t.stolen, 0.7);
}

TEST(OtherLoad, AnotherTextIsNothing) {
  EXPECT_EQ(parse_cpu_time("", 100).all, 0);
  EXPECT_EQ(parse_cpu_time("intr 1 2 3", 100).all, 0);
  EXPECT_EQ(other_share({}, {}, 0), 0);
}

TEST(OtherLoad, IsWhatWasNotOurs) {
  // Two cores for 10 s: 20 s in all, 15 at work, 9 of them ours
  EXPECT_DOUBLE_EQ(other_share({100, 400}, {115, 420}, 9), 0.3);
  EXPECT_EQ(other_share({100, 400}, {109, 420}, 9.1), 0);  // ticks are coarse
}

TEST(OtherLoad, WhatOtherGuestsHadIsPartOfIt) {
  EXPECT_DOUBLE_EQ(stolen_share({100, 400, 7}, {115, 420, 8}), 0.05);
  EXPECT_EQ(stolen_share({}, {}), 0);
}

TEST(OtherLoad, OwnWorkIsNotOthers) {
  const OtherLoad load;
  EXPECT_GE(load.share(), 0);
  EXPECT_LE(load.share(), 1);
}

}  // namespace
}  // namespace rehearse::execute
