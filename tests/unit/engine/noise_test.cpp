// Draws of noise: their distributions, what they depend on, and the times of link faults.
#include "sim/engine/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace rehearse::engine {
namespace {

constexpr double kOne = static_cast<double>(kFactorOne);

plan::Noise jitter(plan::Distribution distribution, double variation) {
  plan::Noise noise;
  noise.distribution = distribution;
  noise.granularity = plan::Granularity::op;
  noise.kernels = variation;
  return noise;
}

// 40,000 factors of different kernels.
std::vector<double> factors(const plan::Noise& noise, std::int64_t sample = 0) {
  const Noise draws(noise, sample, {}, 10);
  std::vector<double> values;
  for (std::int32_t rank = 0; rank < 10; ++rank)
    for (std::int32_t step = 0; step < 10; ++step)
      for (std::int32_t slot = 0; slot < 20; ++slot)
        for (std::int32_t op = 0; op < 20; ++op)
          values.push_back(static_cast<double>(draws.kernel(rank, step, slot, op)) / kOne);
  return values;
}

// The standard error of the mean is 0.1 / sqrt(40,000) = 0.0005, of the deviation about 0.0004 (more for lognormal).
TEST(Noise, FactorsHaveMeanOneAndTheirCoefficientOfVariation) {
  for (const auto distribution : {plan::Distribution::lognormal, plan::Distribution::uniform}) {
    const std::vector<double> values = factors(jitter(distribution, 0.1));
    double sum = 0, squares = 0;
    for (const double v : values) sum += v, squares += (v - 1) * (v - 1);
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(sum / n, 1, 4 * 0.0005);
    EXPECT_NEAR(std::sqrt(squares / n), 0.1, 4 * 0.0005);
  }
}

TEST(Noise, UniformFactorsFillTheirRange) {
  const std::vector<double> values = factors(jitter(plan::Distribution::uniform, 0.1));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double width = 0.1 * std::sqrt(3.0);
  EXPECT_GE(*low, 1 - width);
  EXPECT_LT(*high, 1 + width);
  EXPECT_NEAR(*low, 1 - width, 1e-3 * width);
  EXPECT_NEAR(*high, 1 + width, 1e-3 * width);
}

// ln f has mean -s^2/2 and deviation s; three deviations are exceeded by 0.27 % of normal draws.
TEST(Noise, LognormalFactorsAreNormalInTheirLogarithm) {
  const std::vector<double> values = factors(jitter(plan::Distribution::lognormal, 0.1));
  const double s = std::sqrt(std::log(1.01));
  const auto far =
      std::count_if(values.begin(), values.end(), [&](double v) { return std::abs(std::log(v) + s * s / 2) > 3 * s; });
  EXPECT_NEAR(static_cast<double>(far) / static_cast<double>(values.size()), 0.0027, 4 * std::sqrt(0.0027 / 40000));
}

TEST(Noise, EveryDrawIsOfItsOwnCounter) {
  const std::vector<double> values = factors(jitter(plan::Distribution::lognormal, 0.1));
  EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), values.size());
  EXPECT_EQ(values, factors(jitter(plan::Distribution::lognormal, 0.1))) << "and of nothing else";
  const std::vector<double> other = factors(jitter(plan::Distribution::lognormal, 0.1), 1);
  EXPECT_NE(values.front(), other.front()) << "another sample";
  plan::Noise reseeded = jitter(plan::Distribution::lognormal, 0.1);
  reseeded.seed = 2;
  EXPECT_NE(values.front(), factors(reseeded).front());
}

TEST(Noise, WithGranularitySlotItsKernelsAreAlike) {
  plan::Noise noise = jitter(plan::Distribution::lognormal, 0.1);
  noise.granularity = plan::Granularity::slot;
  const Noise draws(noise, 0, {}, 2);
  EXPECT_EQ(draws.kernel(0, 1, 2, 3), draws.kernel(0, 1, 2, 4));
  EXPECT_NE(draws.kernel(0, 1, 2, 3), draws.kernel(0, 1, 3, 3));
  EXPECT_NE(draws.kernel(0, 1, 2, 3), draws.kernel(1, 1, 2, 3));
}

TEST(Noise, SlowRanksAreThoseListedAndThatShareOfAll) {
  plan::Noise noise;
  noise.slow_ranks = {{{3, 7}, 0, 1.5}, {{}, 0.1, 2}};
  const Noise draws(noise, 0, {7}, 10000);
  int drawn = 0;
  for (const SlowRank& slow : draws.slow_ranks()) {
    EXPECT_NE(slow.rank, 7) << "spared";
    if (slow.rank != 3) drawn += slow.factor == 2;
  }
  EXPECT_NEAR(drawn, 1000, 4 * 30) << "standard deviation sqrt(10000 * 0.1 * 0.9) = 30";
  EXPECT_GE(draws.kernel(3, 0, 0, 0), factor_of(1.5));
  EXPECT_EQ(times(1'000'000'000, factor_of(1.2)), 1'200'000'000) << "to the picosecond in a millisecond";
}

TEST(Noise, PatternsMatchNames) {
  EXPECT_TRUE(matches("node0/nic*", "node0/nic3-out"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*/nic?-in", "node12/nic3-in"));
  EXPECT_TRUE(matches("*nic*-in", "node1/nic0-in"));
  EXPECT_FALSE(matches("node0/nic*", "node00/nic1"));
  EXPECT_FALSE(matches("nic?", "nic"));
  EXPECT_FALSE(matches("", "a"));
}

std::vector<cluster::Resource> links(int count) {
  std::vector<cluster::Resource> list;
  for (int i = 0; i < count; ++i)
    list.push_back({"link" + std::to_string(i), cluster::ResourceKind::link, Bandwidth(1000)});
  return list;
}

// Each whole period has `duty` of it at the reduced capacity, wherever it lies.
TEST(LinkFaults, EveryPeriodHasItsMeanCapacity) {
  plan::Noise noise;
  noise.links = {{"link*", 1, 0.4, Time::from_ps(10'000'000), 0.3}};
  LinkFaults faults(noise, 0, links(3));
  std::vector<std::int64_t> capacity(3, 1000), since(3, 0);
  std::vector<double> carried(3, 0);
  std::set<std::int64_t> offsets;
  constexpr std::int64_t kPeriods = 200, kEnd = kPeriods * 10'000'000;
  while (faults.next() < Time::from_ps(kEnd)) {
    const std::int64_t now = faults.next().ps();
    faults.apply(faults.next(), [&](std::int32_t link, std::int64_t per_s) {
      const auto l = static_cast<std::size_t>(link);
      carried[l] += static_cast<double>(capacity[l]) * static_cast<double>(now - since[l]);
      if (per_s < capacity[l]) offsets.insert(now % 10'000'000);
      capacity[l] = per_s, since[l] = now;
    });
  }
  for (std::size_t l = 0; l < 3; ++l) {
    carried[l] += static_cast<double>(capacity[l]) * static_cast<double>(kEnd - since[l]);
    EXPECT_NEAR(carried[l] / static_cast<double>(kEnd), 1000 * (1 - 0.3 * 0.6), 1e-6);
  }
  EXPECT_GT(offsets.size(), 500u) << "moments are drawn for each link and period";
  EXPECT_LE(*offsets.rbegin(), 7'000'000) << "and the slow time ends inside its period";
}

TEST(LinkFaults, EntriesOnOneLinkMultiplyAndAShareIsDrawn) {
  plan::Noise noise;
  noise.links = {{"link0", 1, 0.5, Time(), 1}, {"link?", 1, 0.5, Time(), 1}, {"*", 0.25, 0.9, Time(), 1}};
  LinkFaults faults(noise, 3, links(4000));
  ASSERT_EQ(faults.next(), Time());
  std::int64_t first = 0;
  faults.apply(Time(), [&](std::int32_t link, std::int64_t per_s) {
    if (link == 0) first = per_s;
  });
  EXPECT_TRUE(first == 250 || first == 225) << first;
  EXPECT_EQ(faults.next(), Time::max());
  EXPECT_EQ(faults.counts()[0], 1);
  EXPECT_EQ(faults.counts()[1], 10);
  EXPECT_NEAR(static_cast<double>(faults.counts()[2]), 1000, 4 * 27.4) << "sqrt(4000 * 0.25 * 0.75) = 27.4";
}

}  // namespace
}  // namespace rehearse::engine
