// Training that waits for its examples, against closed forms. B samples a micro-batch, W workers that take D for a
// sample, P bytes of a stored sample, R replicas that share a storage of S bytes a second: a replica gets a micro-batch
// each max(B D / W, R B P / S) where reads are short against decoding, or decoding against reads; a step is as long as
// its micro-batches take to come, or as long as without loading if that is longer.
#include <gtest/gtest.h>

#include "sim/account/epoch.h"
#include "sim/run/input_pipeline.h"
#include "tests/support/simulated.h"

namespace rehearse::input_test {
namespace {

constexpr const char* kText =
    "rehearse: 1\nmodel: {family: gpt, layers: 1, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n"
    "cluster: {topology: dgx-a100, gpus: 4}\nplan: {micro_batch: 8}\n";
constexpr Time kForward = Time::from_us(1000), kBackward = Time::from_us(2000), kCompute = kForward + kBackward;

plan::Scenario with(std::vector<std::string> data) {
  return scenario_from(kText, std::move(data));
}

// Transfers take no time.
engine::Outcome run(const plan::Scenario& scenario, const cost::CostModel& costs, int steps = 2) {
  const plan::RankGrid grid = scenario.grid();
  const auto cluster = cluster::build_cluster("dgx-a100", grid.ranks(), {}, 0, REHEARSE_SOURCE_DIR);
  const run::InputPipeline input = run::input_pipeline(scenario, *cluster);
  engine::Options options;
  options.steps = steps;
  options.loaders = input.loaders.empty() ? nullptr : &input.loaders;
  options.recorded_ranks = {0};
  return engine::simulate(lower::lower(scenario), grid, *cluster, *collective::make_free_model(), costs, options);
}
// Kernels of 3 ms a micro-batch in all.
engine::Outcome run(const plan::Scenario& scenario, int steps = 2) {
  return run(scenario, block_costs(kForward, kBackward), steps);
}

double step(const std::vector<std::string>& data, int steps = 2) {
  return run(with(data), steps).step_time.seconds();
}
double waiting(const std::vector<std::string>& data) {
  return share(run(with(data)), result::Share::exposed_input);
}

#define EXPECT_AS_LONG(value, expected) EXPECT_NEAR((value) / (expected), 1, 1e-9)

TEST(Input, WorkersThatAreTooSlowSetTheStep) {
  for (const int workers : {1, 2, 3, 7}) {
    const double expected = 8 * 20e-3 / workers;  // 160, 80, 53.3, 22.9 ms
    const std::vector<std::string> data = {"data.workers=" + std::to_string(workers), "data.sample_time=20ms"};
    EXPECT_AS_LONG(step(data), expected) << workers;
    EXPECT_NEAR(waiting(data), 1 - kCompute.seconds() / expected, 1e-9);
  }
}

TEST(Input, ASlowStorageSetsTheStep) {
  // 4 replicas read 8 samples of 1 MB: 32 MB a step.
  EXPECT_AS_LONG(step({"data.workers=2", "data.sample_bytes=1MB", "data.storage_bandwidth=1GB/s"}), 32e-3);
  EXPECT_AS_LONG(step({"data.workers=2", "data.sample_bytes=1MB", "data.storage_bandwidth=100MB/s"}), 320e-3);
  // Nodes of 8 GPUs: 16 replicas on two of them share one storage, or have one of each node.
  const std::vector<std::string> two = {"cluster.gpus=16", "data.workers=2", "data.sample_bytes=1MB",
                                        "data.storage_bandwidth=1GB/s"};
  EXPECT_AS_LONG(step(two), 128e-3);
  std::vector<std::string> own = two;
  own.push_back("data.storage_of=node");
  EXPECT_AS_LONG(step(own), 64e-3);
}

TEST(Input, ReadingIsPartOfAWorkersTime) {
  // One replica: a worker reads for 8 ms and decodes for 40; four give one each 12 ms, before the storage is full at 8.
  const std::vector<std::string> data = {"cluster.gpus=1", "data.workers=4", "data.sample_time=5ms",
                                         "data.sample_bytes=1MB", "data.storage_bandwidth=1GB/s"};
  EXPECT_AS_LONG(step(data), 12e-3);
  std::vector<std::string> more = data;
  more.push_back("data.workers=16");
  EXPECT_AS_LONG(step(more), 8e-3);
}

TEST(Input, LoadersThatAreFastEnoughCostNothing) {
  const engine::Outcome without = run(with({}));
  for (const std::vector<std::string>& data :
       {std::vector<std::string>{"data.workers=8", "data.sample_time=2.9ms"},
        {"data.workers=1", "data.sample_time=1us", "data.prefetch=1"},
        {"data.workers=2", "data.sample_bytes=1MB", "data.storage_bandwidth=11GB/s"},
        {"data.workers=1", "data.to_device=1kB"}}) {
    const engine::Outcome with_data = run(with(data));
    EXPECT_EQ(with_data.step_time, without.step_time) << data[1];
    EXPECT_EQ(share(with_data, result::Share::exposed_input), 0) << data[1];
  }
}

TEST(Input, TheProcessThatLoadsItselfComputesNothingMeanwhile) {
  const std::vector<std::string> data = {"data.sample_time=1ms", "data.sample_bytes=1MB",
                                         "data.storage_bandwidth=1GB/s"};
  EXPECT_AS_LONG(step(data), 32e-3 + 8e-3 + kCompute.seconds());  // all four replicas read at once
  std::vector<std::string> accumulated = data;
  accumulated.push_back("training.global_batch=96");  // three micro-batches a replica
  EXPECT_AS_LONG(step(accumulated), 3 * (32e-3 + 8e-3 + kCompute.seconds()));
}

TEST(Input, EveryStepButTheFirstIsASteadyOne) {
  const std::vector<std::string> data = {"data.workers=3", "data.sample_time=20ms"};
  for (const int steps : {2, 3, 4, 7, 12}) EXPECT_AS_LONG(step(data, steps), 160e-3 / 3) << steps;
  // The first one fills the queue, too.
  EXPECT_AS_LONG(step(data, 1), 160e-3 + kCompute.seconds());
}

// m micro-batches of c = 1 ms each, then an optimizer that is long enough to fill the queue again. One micro-batch is
// on the device and D are loaded when a step begins, the others come L = 4 ms apart: m c or (m - 1 - D) L + c, and the
// optimizer.
TEST(Input, WhatIsLoadedAheadIsBoundedByPrefetch) {
  constexpr Time kHalf = Time::from_us(500);
  const GivenCosts costs([=](const program::Op& op) {
    if (op.phase == program::Phase::forward && ends_with(op.name, "mlp.up.forward")) return kHalf;
    if (ends_with(op.name, "mlp.up.backward_weight")) return kHalf;
    return std::holds_alternative<program::Optimizer>(op.shape) ? Time::from_us(40'000) : Time();
  });
  const auto step_of = [&](const std::vector<std::string>& data) {
    std::vector<std::string> keys = {"cluster.gpus=1", "training.global_batch=64"};
    keys.insert(keys.end(), data.begin(), data.end());
    return run(with(keys), costs, 8).step_time;
  };
  const Time optimizer = step_of({}) - kHalf * 16;
  ASSERT_GE(optimizer, Time::from_us(40'000));
  for (const auto& [ahead, expected_us] : {std::pair{1, 25'000}, {2, 21'000}, {4, 13'000}, {6, 8'000}, {64, 8'000}}) {
    const std::string prefetch = "data.prefetch=" + std::to_string(ahead);
    EXPECT_EQ(step_of({"data.workers=1", "data.sample_time=500us", prefetch}), Time::from_us(expected_us) + optimizer)
        << prefetch;
  }
}

TEST(Input, AWaitSaysSoInTheRecordedOps) {
  const engine::Outcome outcome = run(with({"data.workers=1", "data.sample_time=20ms"}));
  std::int64_t waited = 0;
  for (const result::OpRecord& record : outcome.records)
    if (record.waited_for == result::Share::exposed_input) waited += record.waited_ps;
  // With one micro-batch a step its place is free, and it is asked for, once backward has read the one before.
  EXPECT_EQ(waited, (Time::from_us(160'000) - kCompute).ps());
}

TEST(Input, PipelinesWaitAtTheirFirstStage) {
  const std::vector<std::string> plan = {"model.layers=2",           "plan.pipeline=2", "cluster.gpus=2",
                                         "training.global_batch=32", "data.workers=1",  "data.sample_time=10ms"};
  const engine::Outcome outcome = run(with(plan));
  EXPECT_AS_LONG(outcome.step_time.seconds(), 4 * 80e-3);
  EXPECT_GT(share(outcome, result::Share::exposed_input), 0.4) << "the first stage's half of the ranks' time";
  EXPECT_GT(share(outcome, result::Share::bubble), 0.4) << "the second waits for the first";
  // Ranks that split a layer train on the same samples, which are read once.
  const std::vector<std::string> split = {"plan.tensor=4", "data.workers=2", "data.sample_bytes=1MB",
                                          "data.storage_bandwidth=100MB/s"};
  EXPECT_AS_LONG(step(split), 80e-3);
}

TEST(Epoch, StepsAreThoseOfPyTorchsSampler) {
  const std::vector<std::array<std::int64_t, 3>> expected = {
      {1, 1563, 1562}, {2, 782, 781}, {4, 391, 390}, {8, 196, 195}};
  for (const auto& [gpus, padded, dropping] : expected) {
    const std::vector<std::string> keys = {"cluster.gpus=" + std::to_string(gpus), "plan.micro_batch=32",
                                           "data.samples=50000"};
    const result::Epoch epoch = account::epoch_of(with(keys));
    EXPECT_EQ(epoch.padded_steps, padded) << gpus;
    EXPECT_EQ(epoch.dropping_steps, dropping) << gpus;
    EXPECT_EQ(epoch.steps(), dropping) << "drop_last is the default";
    // The same batch, accumulated of four micro-batches.
    const std::vector<std::string> accumulated = {keys[0], "plan.micro_batch=8", keys[2], "data.drop_last=false",
                                                  "training.global_batch=" + std::to_string(32 * gpus)};
    EXPECT_EQ(account::epoch_of(with(accumulated)).steps(), padded) << gpus;
  }
  // Samples are shared out before batches are made: 10 of 3 replicas are 4 or 3 each.
  const result::Epoch few =
      account::epoch_of(with({"cluster.gpus=3", "plan.micro_batch=2", "data.samples=10", "data.epochs=3"}));
  EXPECT_EQ(few.padded_steps, 2);
  EXPECT_EQ(few.dropping_steps, 1);
  EXPECT_EQ(few.epochs, 3);
  EXPECT_EQ(account::epoch_of(with({})).samples, 0);
}

}  // namespace
}  // namespace rehearse::input_test
