// The scatter of a machine from made-up samples: each part of it by itself is found as it was put in.
#include "calibrate/jitter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/base/random.h"

namespace rehearse::calibrate {
namespace {

using cost::KernelClass;

// The i-th of a stream of standard normal numbers (Box and Muller).
double made_normal(std::uint64_t i, std::uint64_t stream) {
  const auto words = Philox::draw(stream, i);
  const double u = (static_cast<double>(words[0]) + 0.5) * 0x1p-32, v = (static_cast<double>(words[1]) + 0.5) * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

constexpr double kMedian = 1e-3;
constexpr std::int64_t kSteps = 100;

KernelSample sample(int rank, std::int64_t step, double ln, KernelClass kind = KernelClass::product) {
  return {rank, step, kind, kMedian * std::exp(ln), kMedian, kSteps};
}

TEST(Jitter, FindsTheSpreadOfEachClass) {
  std::vector<KernelSample> run;
  for (std::uint64_t i = 0; i < 20; ++i)
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const std::uint64_t at = i * kSteps + static_cast<std::uint64_t>(step);
      run.push_back(sample(0, step, 0.03 * made_normal(at, 1)));
      run.push_back(sample(0, step, 0.12 * made_normal(at, 2), KernelClass::other));
    }
  JitterSamples samples;
  samples.add_run(1, 1, run);
  const cost::Jitter j = samples.jitter();
  EXPECT_NEAR(j.kernels[0], 0.03, 0.003);
  EXPECT_EQ(j.kernels[1], 0);  // no attention was measured
  EXPECT_NEAR(j.kernels[2], 0.12, 0.012);
}

// All kernels of a rank's step take a factor, one of the rank's own and one that both ranks share.
TEST(Jitter, TellsWhatARanksStepSharesFromWhatAllRanksShare) {
  std::vector<KernelSample> run;
  for (std::int64_t step = 0; step < kSteps; ++step)
    for (int rank = 0; rank < 2; ++rank) {
      const auto at = static_cast<std::uint64_t>(step);
      const double factor = 0.1 * made_normal(at, 3) + 0.04 * made_normal(at, 4 + static_cast<std::uint64_t>(rank));
      for (int i = 0; i < 9; ++i) run.push_back(sample(rank, step, factor));
    }
  JitterSamples samples;
  samples.add_run(1, 2, run);
  const cost::Jitter j = samples.jitter();
  EXPECT_NEAR(j.rank_step, 0.04, 0.01);
  EXPECT_NEAR(j.step, 0.1, 0.025);
  EXPECT_NEAR(j.kernels[0], 0, 1e-9);  // within a step all are alike
}

// Every tenth call of 1 ms takes 3 ms longer: 100 a second of medians.
TEST(Jitter, FindsDelaysByTheCompanyTheyCameIn) {
  std::vector<KernelSample> quiet, delayed;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    quiet.push_back(sample(0, step, 0));
    KernelSample one = sample(0, step, 0);
    if (step % 10 == 0) one.seconds += 3e-3;
    delayed.push_back(one);
    for (int i = 0; i < 9; ++i) delayed.push_back(sample(0, step, 0));  // the step's other kernels are not
  }
  JitterSamples samples;
  samples.add_run(1, 1, quiet);
  samples.add_run(1, 2, delayed);
  const auto delays = samples.delays();
  ASSERT_EQ(delays.size(), 2U);
  EXPECT_FALSE(cost::nearest_delays(delays, 1, 1).any());
  const cost::Delays found = cost::nearest_delays(delays, 1, 2);
  EXPECT_NEAR(found.rate, 10, 1e-6);  // ten kernels a step, one in a hundred of them
  EXPECT_NEAR(found.mean_s, 3e-3, 1e-9);
  EXPECT_NEAR(found.spread, 0, 1e-9);
  EXPECT_NEAR(cost::nearest_delays(delays, 1, 8).rate, 10, 1e-6);  // the company most like it
}

// Body and delays together have the measured mean.
TEST(Jitter, TheMeanIsKept) {
  std::vector<RepeatedSample> samples;
  double sum = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    double seconds = kMedian * std::exp(0.05 * made_normal(i, 7));
    if (i % 50 == 0) seconds += 1e-3 * std::exp(0.8 * made_normal(i, 8));
    samples.push_back({seconds, kMedian});
    sum += seconds;
  }
  const cost::Delays d = delays_a_second(samples, 0.05);
  const double expected = 5000 * kMedian * (std::exp(0.05 * 0.05 / 2) + d.rate * d.mean_s);
  EXPECT_NEAR(expected, sum, 1e-9);
  EXPECT_NEAR(d.rate, 20, 3);
  const cost::Delays call = delays_a_call(samples, 0.05);
  EXPECT_NEAR(call.rate, d.rate * kMedian, 1e-9);
}

// Half of the calls take 20 us, half 1 to 3 ms: their median, 1 ms, is fifty times as long as the quick ones, and yet
// none takes fifty times as long as the median.
TEST(Jitter, OfACrowdedMachineIsNoWiderThanItsMeanAllows) {
  std::vector<RepeatedSample> samples;
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    samples.push_back({i < 49 ? 20e-6 : 1e-3 + 2e-3 * (i - 49) / 51, 1e-3});
    sum += samples.back().seconds;
  }
  const double spread = body_spread(samples);
  EXPECT_LT(spread, 0.6);
  EXPECT_LE(1e-3 * std::exp(spread * spread / 2), std::max(sum / 100, 1e-3 * std::exp(0.02)) + 1e-12);
}

TEST(Jitter, OfTransfersAndWakesIsOfTheirOwnMedian) {
  JitterSamples samples;
  std::vector<double> quick, slow, wakes;
  for (std::uint64_t i = 0; i < 400; ++i) {
    quick.push_back(20e-6 * std::exp(0.1 * made_normal(i, 11)));
    slow.push_back(5e-3 * std::exp(0.1 * made_normal(i, 12)));
    wakes.push_back(i % 20 == 0 ? 4e-3 : 30e-6);
  }
  samples.add_transfers(quick);
  samples.add_transfers(slow);
  samples.add_wakes(wakes);
  const cost::Jitter j = samples.jitter();
  EXPECT_NEAR(j.transfers, 0.1, 0.015);
  EXPECT_EQ(j.waking, 0);
  EXPECT_NEAR(j.waking_delays.rate, 0.05, 1e-9);
  EXPECT_NEAR(j.waking_delays.mean_s, 4e-3 - 30e-6, 1e-9);
}

TEST(Jitter, OfNothingIsNone) {
  const JitterSamples none;
  EXPECT_FALSE(none.jitter().any());
  EXPECT_TRUE(none.delays().empty());
  EXPECT_EQ(body_spread({{1, 1}, {2, 1}, {3, 1}}), 0) << "too few";
}

}  // namespace
}  // namespace rehearse::calibrate
