// Shares of resources: each test states the system and the expected rates in words.
#include "sim/engine/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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

// The same rule, looking at every resource and activity each time.
std::vector<std::int64_t> plain_rates(const MaxMin& system) {
  const std::size_t resources = system.capacity.size(), activities = system.limit.size();
  std::vector<std::int64_t> rate(activities, -1), left(resources), weight(resources, 0);
  for (std::size_t r = 0; r < resources; ++r) left[r] = system.capacity[r] * kWeightOne;
  for (const MaxMin::Use& use : system.uses) weight[static_cast<std::size_t>(use.resource)] += use.weight;
  const auto freeze = [&](std::size_t i, std::int64_t at) {
    rate[i] = at;
    for (auto u = system.first[i]; u < system.first[i + 1]; ++u) {
      const MaxMin::Use& use = system.uses[static_cast<std::size_t>(u)];
      left[static_cast<std::size_t>(use.resource)] -= at * use.weight;
      weight[static_cast<std::size_t>(use.resource)] -= use.weight;
    }
  };
  for (;;) {
    std::int64_t level = INT64_MAX;
    for (std::size_t r = 0; r < resources; ++r)
      if (weight[r] > 0) level = std::min(level, left[r] / weight[r]);
    // The lowest limit that is reached first, or else everything on the resources that are full.
    std::size_t lowest = activities;
    for (std::size_t i = 0; i < activities; ++i)
      if (rate[i] < 0 && system.limit[i] <= level && (lowest == activities || system.limit[i] < system.limit[lowest]))
        lowest = i;
    if (lowest < activities) {
      freeze(lowest, system.limit[lowest]);
      continue;
    }
    if (level == INT64_MAX) return rate;
    std::vector<char> full(resources, 0);
    for (std::size_t r = 0; r < resources; ++r) full[r] = weight[r] > 0 && left[r] / weight[r] == level;
    for (std::size_t i = 0; i < activities; ++i)
      for (auto u = system.first[i]; u < system.first[i + 1] && rate[i] < 0; ++u)
        if (full[static_cast<std::size_t>(system.uses[static_cast<std::size_t>(u)].resource)]) freeze(i, level);
  }
}

TEST(MaxMin, AgreesToTheByteWithAPlainSolver) {
  std::mt19937 random(7);
  const auto below = [&random](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    MaxMin system;
    const std::int32_t resources = 1 + below(20);
    for (std::int32_t r = 0; r < resources; ++r) system.capacity.push_back(1 + below(1'000'000));
    for (std::int32_t i = 1 + below(60); i > 0; --i) {
      system.add_activity(1 + below(300'000));
      for (std::int32_t r = below(3); r < resources; r += 1 + below(8))
        system.add_use(r, 1 + below(static_cast<std::uint32_t>(kWeightOne)));
      system.end_activity();
    }
    const std::vector<std::int64_t> expected = plain_rates(system);
    system.solve();
    ASSERT_EQ(system.rate, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace rehearse::engine
