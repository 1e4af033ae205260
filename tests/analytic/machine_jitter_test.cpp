// The measured scatter of a machine against closed forms: the slower of two ranks, delays that come at a rate, and that
// nothing of it is there where it is off or was not measured.
#include "sim/engine/machine_jitter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using testing::EventId;
using testing::RoleBuilder;
using testing::StreamKind;

// `ranks` replicas, each a kernel of 1 ms (a product), then an all-reduce that takes no time.
struct ScatteredRanks {
  program::Program program;
  plan::RankGrid grid;
  testing::TestCluster cluster;
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;

  explicit ScatteredRanks(int ranks) : grid(testing::grid_of(1, ranks, 1)), cluster(ranks, {}) {
    program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
    RoleBuilder role;
    const auto compute = role.stream("compute", StreamKind::compute), data = role.stream("data", StreamKind::data);
    const EventId ready = role.event("ready"), reduced = role.event("reduced");
    const auto body = role.body("step");
    role.kernel(body, "k", compute, {}, ready);
    role.all_reduce(body, "reduce", data, 0, 10, {ready}, reduced);
    role.kernel(body, "update", compute, {reduced});
    role.slot(body);
    program.roles.push_back(role.build());
    costs.ps = {{"k", 1'000'000'000}, {"update", 0}};
    options.steps = 1;
  }
  std::int64_t step() const { return simulate(program, grid, cluster, model, costs, options).step_time.ps(); }
  double mean_of(int samples) {
    double sum = 0;
    for (int s = 0; s < samples; ++s) {
      options.sample = s;
      sum += static_cast<double>(step()) / 1e9;
    }
    return sum / samples;
  }
};

constexpr std::size_t kProduct = static_cast<std::size_t>(cost::KernelClass::product);
constexpr int kDraws = 4000;

// The larger of two independent lognormal numbers of median 1 and spread s has mean 2 exp(s^2 / 2) Phi(s / sqrt 2).
TEST(MachineJitter, TheSlowerOfTwoRanksTakesItsClosedForm) {
  for (const bool shared : {false, true}) {
    ScatteredRanks run(2);
    constexpr double s = 0.2;
    (shared ? run.costs.machine.jitter.rank_step : run.costs.machine.jitter.kernels[kProduct]) = s;
    const double expected = std::exp(s * s / 2) * std::erfc(-s / 2);
    EXPECT_GT(expected, 1.1);
    EXPECT_NEAR(run.mean_of(kDraws), expected, 4 * s / std::sqrt(kDraws)) << shared;
  }
}

// Delays of 50 us that come 4,000 times a second: 4 of them in a millisecond, which add 0.2 ms.
TEST(MachineJitter, DelaysComeAtTheirRate) {
  ScatteredRanks run(1);
  run.costs.machine.jitter.kernel_delays = {4000, 50e-6, 0.5};
  // The variance of a sum of Poisson many lengths is their number times the mean square length.
  const double error = 50e-3 * std::sqrt(4 * std::exp(0.25) / kDraws);
  EXPECT_NEAR(run.mean_of(kDraws), 1.2, 4 * error);
}

TEST(MachineJitter, TransfersAreDelayedACall) {
  ScatteredRanks run(2);
  run.costs.machine.jitter.transfer_delays = {0.25, 2e-3, 0};
  const double error = 2 * std::sqrt(0.25 / kDraws);
  EXPECT_NEAR(run.mean_of(kDraws), 1 + 0.25 * 2, 4 * error);
}

TEST(MachineJitter, OfASeedIsTheSameAndOfAnotherNot) {
  ScatteredRanks run(2);
  run.costs.machine.jitter.kernels[kProduct] = 0.2;
  const std::int64_t first = run.step();
  EXPECT_EQ(run.step(), first);
  run.options.noise.seed = 2;
  EXPECT_NE(run.step(), first);
}

TEST(MachineJitter, IsNotThereWhereItIsOffOrWasNotMeasured) {
  ScatteredRanks run(2);
  const std::int64_t plain = run.step();
  EXPECT_EQ(plain, 1'000'000'000);
  run.costs.machine.jitter.kernels[kProduct] = 0.2;
  run.costs.machine.jitter.step = 0.3;
  EXPECT_NE(run.step(), plain);
  run.options.noise.machine = false;
  EXPECT_EQ(run.step(), plain);
  run.options.noise.machine = true;
  run.costs.machine.jitter.kernels[kProduct] = 0;  // what all ranks share is not drawn
  EXPECT_EQ(run.step(), plain);
}

// P(N <= n) of a Poisson number with mean 2: 0.1353, 0.4060, 0.6767.
TEST(MachineJitter, PoissonNumbersFollowTheirDistribution) {
  EXPECT_EQ(poisson(2, 0.135), 0);
  EXPECT_EQ(poisson(2, 0.136), 1);
  EXPECT_EQ(poisson(2, 0.405), 1);
  EXPECT_EQ(poisson(2, 0.407), 2);
  EXPECT_EQ(poisson(2, 0.676), 2);
  EXPECT_EQ(poisson(0, 0.5), 0);
  EXPECT_EQ(poisson(10000, 0.5), 10000);
  EXPECT_EQ(poisson(10000, 0.8413447), 10100);  // one standard deviation above
}

}  // namespace
}  // namespace rehearse::engine
