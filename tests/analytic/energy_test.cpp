// The energy of a step where arithmetic says what it must be: products by their FLOPs, idling by time, transfers by
// bytes; and a power limit that products alone would exceed.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/run/run.h"
#include "tests/support/simulated.h"

namespace rehearse::run {
namespace {

result::Result of_scenario(const std::string& text) {
  Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.record = false;
  return simulate_scenario(scenario_from(text), options);
}

cost::Device a100() {
  return cost::load_costs({cost::find_device_file("a100-sxm-80g", REHEARSE_SOURCE_DIR)})->device();
}

// Two products of 16,384 squared and their gradients on one GPU, little else: at the highest clock more than the limit.
TEST(Energy, OfProductsAloneIsAtThePowerLimit) {
  const result::Result r = of_scenario(
      "rehearse: 1\nmodel: {family: mlp, widths: [16, 16384, 16384, 16384]}\ncluster: {topology: dgx-a100}\n"
      "plan: {micro_batch: 65536}\ntraining: {optimizer: sgd, clip: 0, weight_decay: 0}\n");
  const cost::Power power = a100().power;
  const double seconds = static_cast<double>(r.step_time_ps) * 1e-12;
  ASSERT_TRUE(r.energy.known);
  EXPECT_NEAR(result::watts_per_gpu(r.energy, r.step_time_ps, 1), 400, 1e-6);
  EXPECT_NEAR(r.energy.idle_j, 80 * seconds, 1e-9 * seconds);
  const double full = r.hardware_flops * power.half.value * 1e-12, v = power.voltage.voltage(r.energy.clock);
  EXPECT_NEAR(r.energy.products_j, full * v * v, 1e-6 * full);
  EXPECT_LT(r.energy.clock, 1);
  EXPECT_NEAR(r.energy.high_j, r.energy.joules(), 1e-6 * full) << "more a FLOP lowers the clock";
  EXPECT_LT(r.energy.low_j, r.energy.joules());
  EXPECT_LT(r.energy.zeros_j, r.energy.joules());
}

// Gradients over NICs of 1 Gbit/s: the GPUs wait.
TEST(Energy, OfAStepThatWaitsIsNearlyThatOfIdling) {
  const result::Result r = of_scenario(
      "rehearse: 1\nmodel: {family: mlp, widths: [16384, 16384]}\n"
      "cluster: {topology: dgx-a100, gpus: 16, overrides: {nic: {bandwidth: 1Gbps}}}\n"
      "training: {optimizer: sgd, clip: 0, weight_decay: 0}\n");
  const double watts = result::watts_per_gpu(r.energy, r.step_time_ps, r.ranks);
  EXPECT_GT(watts, 80);
  EXPECT_LT(watts, 90);
  EXPECT_EQ(r.energy.clock, 1);
}

// Twice the replicas do twice the work in about the same time.
TEST(Energy, GoesWithTheNumberOfGpus) {
  const auto joules = [](int gpus) {
    const result::Result r = of_scenario(
        "rehearse: 1\nmodel: {family: mlp, widths: [4096, 4096, 4096]}\ncluster: {topology: dgx-a100, gpus: " +
        std::to_string(gpus) + "}\nplan: {micro_batch: 65536}\ntraining: {global_batch: " +
        std::to_string(65536 * gpus) + ", optimizer: sgd, clip: 0, weight_decay: 0}\n");
    return r.energy.joules();
  };
  EXPECT_NEAR(joules(4), 2 * joules(2), 0.05 * joules(4));
}

// A ring of n sends 2 (n - 1) / n of a tensor from each device, and each receives as much. An all-reduce reads and
// writes memory 5 times for two bytes that are sent (collective/algorithms).
TEST(Energy, OfAnAllReduceIsThatOfItsBytes) {
  constexpr double kRanks = 4;
  const plan::Scenario scenario = scenario_from(
      "rehearse: 1\nmodel: {family: mlp, widths: [1024, 1024]}\ncluster: {topology: dgx-a100, gpus: 4}\n"
      "training: {optimizer: sgd, clip: 0, weight_decay: 0}\n");
  const plan::RankGrid grid = scenario.grid();
  const auto cluster = cluster::build_cluster("dgx-a100", grid.ranks(), {}, 0, REHEARSE_SOURCE_DIR);
  const auto collectives = collective::make_model(*cluster, cost::find_device_file("a100-sxm-80g", REHEARSE_SOURCE_DIR),
                                                  {collective::pin_of("all_reduce", "ring", "simple", "test")});
  engine::Options options;
  options.steps = 1;
  const engine::Outcome outcome =
      engine::simulate(lower::lower(scenario), grid, *cluster, *collectives, block_costs(Time(), Time()), options);
  double sent = 0;
  for (const result::CollectiveUse& use : outcome.collectives) {
    ASSERT_EQ(use.kind, "all_reduce");
    ASSERT_EQ(use.ranks, kRanks);
    sent += 2 * (kRanks - 1) * static_cast<double>(use.bytes * use.count);
  }
  ASSERT_GT(sent, 1e6);
  EXPECT_NEAR(outcome.port_bytes, 2 * sent, 0.001 * sent);
  EXPECT_NEAR(outcome.transfer_memory_bytes, 2.5 * sent, 0.001 * sent);
}

TEST(Energy, IsUnknownOfADeviceThatDoesNotSay) {
  const auto costs = cost::make_uniform_costs(Time::from_us(1));
  EXPECT_FALSE(costs->device().power.known());
}

}  // namespace
}  // namespace rehearse::run
