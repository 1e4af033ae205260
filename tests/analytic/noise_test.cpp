// Noise against closed forms: the slowest of N, one slow rank, a link that flaps; and that none of it is there when it
// is off.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using testing::EventId;
using testing::RoleBuilder;
using testing::StreamKind;

// `ranks` replicas: `kernels` of 1 us each in one slot, an all-reduce (`transfer`), an update that takes no time.
struct DataParallel {
  program::Program program;
  plan::RankGrid grid;
  testing::TestCluster cluster;
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;

  explicit DataParallel(int ranks, int kernels = 1, std::vector<std::int64_t> capacities = {})
      : grid(testing::grid_of(1, ranks, 1)), cluster(ranks, std::move(capacities)) {
    program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
    RoleBuilder role;
    const auto compute = role.stream("compute", StreamKind::compute), data = role.stream("data", StreamKind::data);
    const EventId ready = role.event("ready"), reduced = role.event("reduced");
    const auto body = role.body("step");
    for (int k = 0; k < kernels; ++k)
      role.kernel(body, fmt::format("k{}", k), compute, {}, k + 1 == kernels ? ready : -1);
    role.all_reduce(body, "reduce", data, 0, 10, {ready}, reduced);
    role.kernel(body, "update", compute, {reduced});
    role.slot(body);
    program.roles.push_back(role.build());
    costs.otherwise = 1'000'000;
    costs.ps = {{"update", 0}};
    options.steps = 1;
  }
  std::int64_t step() const { return simulate(program, grid, cluster, model, costs, options).step_time.ps(); }
};

// The largest of n uniform draws from [a, b] has mean a + (b - a) n / (n + 1) and variance (b - a)^2 n / ((n + 1)^2
// (n + 2)); the mean of m samples lies within 4 standard errors of it but once in 16,000.
TEST(NoiseAnalytic, TheExpectedMaximumOfUniformRanksIsItsClosedForm) {
  const double c = 0.1, a = 1 - c * std::sqrt(3.0), b = 1 + c * std::sqrt(3.0);
  constexpr int kSamples = 4000;
  for (const int n : {1, 2, 8, 64}) {
    DataParallel run(n);
    run.options.noise.distribution = plan::Distribution::uniform;
    run.options.noise.kernels = c;
    double sum = 0;
    for (int s = 0; s < kSamples; ++s) {
      run.options.sample = s;
      sum += static_cast<double>(run.step()) / 1e6;
    }
    const double expected = a + (b - a) * n / (n + 1);
    const double variance = (b - a) * (b - a) * n / ((n + 1.0) * (n + 1.0) * (n + 2.0));
    EXPECT_NEAR(sum / kSamples, expected, 4 * std::sqrt(variance / kSamples)) << n << " ranks";
  }
}

// Four workers compute in two slots, forward (1 us) and backward (2 us), then wait for one another. Each worker's time
// is uniform in 0.8 to 1.2 of its mean of 3 us, drawn for each worker and step: the mean over steps of the slowest is
// 0.8 + 0.4 * 4/5 = 1.12 of it. (Were the factors drawn for each slot, sums of two would be nearer the mean: 1.09.)
constexpr double kLeast = 0.8, kLargest = 1.2;

DataParallel four_workers() {
  DataParallel run(4);
  program::Role& role = run.program.roles.front();
  program::Op forward = role.bodies.front().ops.front();
  forward.name = "forward";
  forward.records = -1;
  role.bodies.push_back({"forward", {forward}});
  role.slots.insert(role.slots.begin(), {1, -1});
  run.costs.ps["k0"] = 2'000'000;
  run.options.noise.rank_step = {kLeast, kLargest};
  return run;
}

// Four standard errors, as above.
double tolerance_of_the_slowest(int n, int draws) {
  const double width = kLargest - kLeast;
  return 4 * std::sqrt(width * width * n / ((n + 1.0) * (n + 1.0) * (n + 2.0)) / draws);
}

TEST(NoiseAnalytic, TheSlowestOfFourUniformWorkersIsItsExpectedMaximumOverSteps) {
  constexpr int kSteps = 4000;
  DataParallel run = four_workers();
  run.options.steps = kSteps;
  const Outcome outcome = simulate(run.program, run.grid, run.cluster, run.model, run.costs, run.options);
  ASSERT_EQ(outcome.step_ends.size(), std::size_t{kSteps});
  const double mean = static_cast<double>(outcome.step_ends.back().ps()) / 3e6 / kSteps;
  EXPECT_NEAR(mean, 1.12, tolerance_of_the_slowest(4, kSteps));
  EXPECT_LT(tolerance_of_the_slowest(4, kSteps), 0.005) << "nearer than the 1.09 of factors a slot";
}

TEST(NoiseAnalytic, TheSlowestOfFourUniformWorkersIsItsExpectedMaximumOverSamples) {
  constexpr int kSamples = 4000;
  DataParallel run = four_workers();
  double sum = 0;
  for (int s = 0; s < kSamples; ++s) {
    run.options.sample = s;
    sum += static_cast<double>(run.step()) / 3e6;
  }
  EXPECT_NEAR(sum / kSamples, 1.12, tolerance_of_the_slowest(4, kSamples));
}

// The other causes multiply, and their own draws stay what they were.
TEST(NoiseAnalytic, ARanksFactorForAStepIsOneOfAProduct) {
  DataParallel run = four_workers();
  const plan::RankStep both = run.options.noise.rank_step;
  run.options.noise.kernels = 0.1;
  run.options.noise.slow_ranks = {{{2}, 0, 1.5}};
  const Noise all(run.options.noise, 3, {}, 4);
  run.options.noise.rank_step = {};
  const Noise without(run.options.noise, 3, {}, 4);
  run.options.noise = {};
  run.options.noise.rank_step = both;
  const Noise alone(run.options.noise, 3, {}, 4);
  for (const std::int32_t rank : {0, 2}) {
    EXPECT_NE(alone.kernel(rank, 0, 0, 0), alone.kernel(rank, 1, 0, 0)) << "each step its own";
    for (const std::int32_t slot : {0, 1}) {
      EXPECT_EQ(alone.kernel(rank, 5, slot, 0), alone.kernel(rank, 5, 0, 0)) << "a step has one";
      const double product = static_cast<double>(without.kernel(rank, 5, slot, 0)) *
                             static_cast<double>(alone.kernel(rank, 5, slot, 0)) / static_cast<double>(kFactorOne);
      EXPECT_NEAR(static_cast<double>(all.kernel(rank, 5, slot, 0)) / product, 1, 1e-8);
    }
  }
  EXPECT_NE(alone.kernel(0, 5, 0, 0), alone.kernel(1, 5, 0, 0)) << "each rank its own";
}

// With a draw an op, a slot's time has 1/sqrt(k) of the variation that one draw for all its kernels has.
TEST(NoiseAnalytic, DrawsForEachOpAverageOut) {
  constexpr int kKernels = 25, kSamples = 2000;
  const auto deviation = [&](plan::Granularity granularity) {
    DataParallel run(1, kKernels);
    run.options.noise.granularity = granularity;
    run.options.noise.kernels = 0.1;
    double squares = 0;
    for (int s = 0; s < kSamples; ++s) {
      run.options.sample = s;
      const double off = static_cast<double>(run.step()) / (kKernels * 1e6) - 1;
      squares += off * off;
    }
    return std::sqrt(squares / kSamples);
  };
  EXPECT_NEAR(deviation(plan::Granularity::slot), 0.1, 0.008);
  EXPECT_NEAR(deviation(plan::Granularity::op), 0.02, 0.0016);
}

// Everybody waits for the slow one: kernels 1.2 times as long, the transfer as ever.
TEST(NoiseAnalytic, OneSlowRankScalesTheKernelsOfADataParallelStep) {
  DataParallel run(16, 3);
  run.model.groups = [](const std::vector<int>&, std::int64_t) { return testing::plan_of(500'000); };
  EXPECT_EQ(run.step(), 3'000'000 + 500'000);
  run.options.noise.slow_ranks = {{{5}, 0, 1.2}};
  EXPECT_EQ(run.step(), 3'600'000 + 500'000);
  run.options.spared = {5};
  EXPECT_EQ(run.step(), 3'500'000) << "the counterfactual";
  run.options.spared = {};
  run.options.noise.slow_ranks = {{{5, 6}, 0, 1.2}, {{7}, 0, 1.1}};
  EXPECT_EQ(run.step(), 4'100'000) << "the slowest decides";
}

TEST(NoiseAnalytic, ATransfersFactorStretchesItsStartUpAndItsBytes) {
  DataParallel run(2, 1, {1'000'000'000});
  run.model.groups = [](const std::vector<int>&, std::int64_t) {
    auto plan = testing::plan_of(4'000'000, {{0, 4'000}});
    plan.startup = Time::from_ps(1'000'000);
    return plan;
  };
  run.options.noise.transfers = 0.2;
  const Noise draws(run.options.noise, 0, {}, 2);
  const Factor factor = draws.transfer(true, 0, 0, 0, 0);
  ASSERT_NE(factor, kFactorOne);
  EXPECT_EQ(run.step(), 1'000'000 + times(1'000'000, factor) + times(4'000'000, factor));
}

// 1 GB/s that is at a quarter for 40 % of every period: 0.7 GB/s on the mean. Bytes that alone take 1,000 periods take
// 1,000 / 0.7 of them, but for the one in which they end.
TEST(NoiseAnalytic, AFlappingLinkHasItsMeanCapacity) {
  constexpr std::int64_t kPeriod = 1'000'000, kAlone = 1000 * kPeriod;
  DataParallel run(2, 1, {1'000'000'000});
  run.model.groups = [](const std::vector<int>&, std::int64_t) {
    return testing::plan_of(kAlone, {{0, kAlone / 1000}});
  };
  EXPECT_EQ(run.step(), 1'000'000 + kAlone);
  run.options.noise.links = {{"r0", 1, 0.25, Time::from_ps(kPeriod), 0.4}};
  EXPECT_NEAR(static_cast<double>(run.step()), 1e6 + static_cast<double>(kAlone) / 0.7, static_cast<double>(kPeriod));
  run.options.noise.links[0].duty = 1;
  EXPECT_EQ(run.step(), 1'000'000 + 4 * kAlone) << "always";
}

TEST(NoiseAnalytic, NoiseOfNothingChangesNothing) {
  DataParallel run(8, 5, {1'000'000'000});
  run.model.groups = [](const std::vector<int>&, std::int64_t) { return testing::plan_of(3'000'001, {{0, 1'234}}); };
  const std::int64_t quiet = run.step();
  run.options.noise.seed = 77;
  EXPECT_EQ(run.step(), quiet);
  run.options.noise.slow_ranks = {{{1}, 0, 1}};
  run.options.noise.links = {{"*", 1, 1, Time::from_ps(500'000), 0.5}};
  EXPECT_EQ(run.step(), quiet) << "factors of 1, capacities of 1";
}

}  // namespace
}  // namespace rehearse::engine
