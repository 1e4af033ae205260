// Shares of resources: each test states the system and the expected rates in words.
#include "sim/engine/max_min.h"

#include <gtest/gtest.h>

namespace rehearse::engine {
namespace {

constexpr std::int64_t kNoLimit = INT64_MAX;

// Activities as lists of (resource, weight in 1/65536).
std::vector<std::int64_t> rates(std::vector<std::int64_t> capacity,
                                const std::vector<std::pair<std::int64_t, std::vector<MaxMin::Use>>>& activities) {
  MaxMin system;
  system.capacity = std::move(capacity);
  for (const auto& [limit, uses] : activities) {
    system.add_activity(limit);
    for (const MaxMin::Use& use : uses) system.add_use(use.resource, use.weight);
    system.end_activity();
  }
  system.solve();
  return system.rate;
}

TEST(MaxMin, TwoActivitiesOnOneResourceGetHalfEach) {
  EXPECT_EQ(rates({100}, {{kNoLimit, {{0, kWeightOne}}}, {kNoLimit, {{0, kWeightOne}}}}),
            (std::vector<std::int64_t>{50, 50}));
}

TEST(MaxMin, WhatOneCannotUseGoesToTheOther) {
  EXPECT_EQ(rates({100}, {{10, {{0, kWeightOne}}}, {kNoLimit, {{0, kWeightOne}}}}),
            (std::vector<std::int64_t>{10, 90}));
}

// L = 100 carries a, b and half of c; M = 60 carries c and d, and d uses 20 at most: a = b = c = 40, d = 20.
TEST(MaxMin, TheHeadersExampleWithWeights) {
  EXPECT_EQ(rates({100, 60}, {{kNoLimit, {{0, kWeightOne}}},
                              {kNoLimit, {{0, kWeightOne}}},
                              {kNoLimit, {{0, kWeightOne / 2}, {1, kWeightOne}}},
                              {20, {{1, kWeightOne}}}}),
            (std::vector<std::int64_t>{40, 40, 40, 20}));
}

// a crosses both links, b the first, c the second. The first link (30) halves to 15 each; c then has 100 - 15.
TEST(MaxMin, ALongFlowIsHeldByItsNarrowestLinkAndLeavesTheRest) {
  EXPECT_EQ(rates({30, 100}, {{kNoLimit, {{0, kWeightOne}, {1, kWeightOne}}},
                              {kNoLimit, {{0, kWeightOne}}},
                              {kNoLimit, {{1, kWeightOne}}}}),
            (std::vector<std::int64_t>{15, 15, 85}));
}

TEST(MaxMin, NobodyOnAResourceLeavesItsActivitiesAtTheirLimits) {
  EXPECT_EQ(rates({100}, {{7, {}}, {9, {}}}), (std::vector<std::int64_t>{7, 9}));
}

TEST(MaxMin, RatesRoundDownSoThatNoResourceIsOverCapacity) {
  EXPECT_EQ(rates({100}, {{kNoLimit, {{0, kWeightOne}}}, {kNoLimit, {{0, kWeightOne}}}, {kNoLimit, {{0, kWeightOne}}}}),
            (std::vector<std::int64_t>{33, 33, 33}));
}

}  // namespace
}  // namespace rehearse::engine
