// Parameter servers, simulated: who waits for whom is as plan.consistency says, whatever workers draw; ranks that are
// alike are one, with the same bytes in result.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"
#include "sim/collective/collective.h"
#include "sim/engine/noise.h"
#include "sim/engine/parameter_servers.h"
#include "sim/run/run.h"
#include "tests/support/lowered.h"
#include "tests/support/without_engine.h"

namespace rehearse::servers_property_test {
namespace {

using engine::ServedRun;
using engine::ServedWork;
using plan::Consistency;

// Workers of which some are three times as slow, messages of half a second, noise in all.
struct Given {
  std::unique_ptr<cluster::Cluster> cluster;
  ServedWork work;
};
Given given(Consistency consistency, int workers, int servers, std::int64_t iterations, std::int64_t seed) {
  Given g{cluster::build_cluster("ethernet-a100", workers + servers, {}, 0, REHEARSE_SOURCE_DIR), {}};
  const auto model = collective::make_plain_model(*g.cluster, Time::from_us(7));
  ServedWork& work = g.work;
  work.workers = work.counted = workers, work.servers = servers;
  work.consistency = consistency, work.iterations = iterations;
  for (int w = 0; w < workers; ++w)
    for (int s = 0; s < servers; ++s) {
      work.pulls.push_back(model->send(workers + s, w, Bytes(1'000'000'000 + 100'000'000 * s)));
      work.pushes.push_back(model->send(w, workers + s, Bytes(1'000'000'000 + 100'000'000 * s)));
    }
  work.update.assign(static_cast<std::size_t>(servers), Time::from_us(500));
  work.add.assign(static_cast<std::size_t>(servers), Time::from_us(100));
  plan::Noise noise;
  noise.seed = seed, noise.rank_step = {0.2, 3};
  noise.slow_ranks = {{{}, 0.3, 3}};
  const engine::Noise draws(noise, 0, {}, workers);
  work.compute = [draws](int worker, std::int64_t iteration) {
    return engine::times(Time::from_seconds(0.1), draws.kernel(worker, static_cast<std::int32_t>(iteration), 0, 0));
  };
  return g;
}

std::int64_t ended_by(const std::vector<ServedRun::Iteration>& own, Time when) {
  return std::count_if(own.begin(), own.end(), [&](const auto& i) { return i.ended <= when; });
}

// The most that an iteration was ahead, when its worker asked for parameters, of those that the slowest had ended.
std::int64_t most_ahead(const ServedRun& run) {
  std::int64_t most = 0;
  for (const auto& own : run.iterations)
    for (std::size_t c = 0; c < own.size(); ++c)
      for (const auto& other : run.iterations)
        most = std::max(most, static_cast<std::int64_t>(c) - ended_by(other, own[c].asked));
  return most;
}

TEST(ParameterServersSimulated, NobodyIsFurtherAheadThanTheBound) {
  for (std::int64_t seed = 1; seed <= 8; ++seed)
    for (const std::int64_t bound : {0, 1, 3}) {
      Given g = given(Consistency::bounded, 5, 2, 30, seed);
      g.work.bound = bound;
      const ServedRun run = run_servers(g.work, *g.cluster);
      EXPECT_EQ(most_ahead(run), bound) << "seed " << seed << ": reached, and not passed";
      EXPECT_EQ(run.most_ahead, bound);
    }
  const Given free = given(Consistency::asynchronous, 5, 2, 30, 1);
  EXPECT_GT(most_ahead(run_servers(free.work, *free.cluster)), 3);
}

TEST(ParameterServersSimulated, SynchronousStepsTakeTheFirstAndNobodyElse) {
  for (std::int64_t seed = 1; seed <= 8; ++seed) {
    Given g = given(Consistency::synchronous, 6, 2, 20, seed);
    g.work.counted = 4;
    const ServedRun run = run_servers(g.work, *g.cluster);
    ASSERT_EQ(run.steps.size(), 20U);
    for (std::size_t c = 0; c < 20; ++c) {
      int counted = 0;
      Time last;
      for (const auto& own : run.iterations) {
        counted += own[c].counted ? 1 : 0;
        if (own[c].counted) last = std::max(last, own[c].ended);
        if (c > 0) {
          EXPECT_GE(own[c].asked, run.steps[c - 1]) << "of parameters that are whole";
        }
      }
      EXPECT_EQ(counted, 4);
      EXPECT_GE(run.steps[c], last);
      for (const auto& own : run.iterations)
        if (!own[c].counted) {
          EXPECT_GE(own[c].ended, last) << "who came first counts";
        }
    }
    // Each server applies exactly the gradients that count.
    std::int64_t applied = 0;
    for (const account::ServerEvent& e : run.events) applied += e.act == account::ServerAct::apply ? 1 : 0;
    EXPECT_EQ(applied, 20 * 4 * 2);
  }
}

// A worker's messages to and from a server are in the order of its iterations, each once, and all is done.
TEST(ParameterServersSimulated, EveryIterationIsPulledAndApplied) {
  const Given g = given(Consistency::asynchronous, 4, 3, 10, 5);
  const ServedRun run = run_servers(g.work, *g.cluster);
  for (int s = 0; s < 3; ++s)
    for (int w = 0; w < 4; ++w) {
      std::vector<std::pair<std::int64_t, account::ServerAct>> own, expected;
      for (const account::ServerEvent& e : run.events)
        if (e.server == s && e.worker == w) own.emplace_back(e.iteration, e.act);
      for (std::int64_t c = 0; c < 10; ++c) {
        expected.emplace_back(c, account::ServerAct::pull);
        expected.emplace_back(c, account::ServerAct::apply);
      }
      EXPECT_EQ(own, expected);
    }
  const ServedRun again = run_servers(g.work, *g.cluster);
  EXPECT_EQ(again.events, run.events);
}

TEST(ParameterServersSimulated, FoldedOrNotAreTheSameBytes) {
  const std::string text =
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 256, heads: 4, vocab: 1000, max_seq_len: 128}\n"
      "plan: {servers: 2, consistency: asynchronous}\ntraining: {global_batch: 64, precision: bf16, clip: 0}\n"
      "cluster: {topology: ethernet-a100, gpus: 16}\n";
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{},
        {"plan.consistency=synchronous"},
        {"plan.consistency=bounded", "plan.staleness=1", "noise.slow_ranks=[{ranks: [3], factor: 2}]"},
        {"plan.server_devices=workers", "framework=torch-ddp"}}) {
    const auto simulated = [&](bool fold) {
      run::Options options;
      options.data_root = REHEARSE_SOURCE_DIR;
      options.fold = fold;
      return run::simulate_scenario(scenario_from(text, plan), options);
    };
    const result::Result folded = simulated(true), every = simulated(false);
    EXPECT_EQ(without_engine(folded), without_engine(every));
    EXPECT_LT(folded.ranks_simulated, every.ranks_simulated);
  }
}

// The slow one paces the bound, and alone.
TEST(ParameterServersSimulated, ABoundIsPacedByTheSlowest) {
  const auto rates = [](const char* consistency) {
    run::Options options;
    options.data_root = REHEARSE_SOURCE_DIR;
    return run::simulate_scenario(
               scenario_from(
                   "rehearse: 1\nmodel: {family: mlp, widths: [512, 512], loss: mse}\n"
                   "plan: {micro_batch: 64, servers: 1}\ntraining: {precision: fp32, optimizer: sgd, clip: 0}\n"
                   "cluster: {topology: dgx-a100, gpus: 4}\nnoise: {slow_ranks: [{ranks: [1], factor: 20}]}\n",
                   {std::string("plan.consistency=") + consistency, "plan.staleness=2"}),
               options)
        .servers.iterations_per_s;
  };
  const std::vector<double> free = rates("asynchronous"), bound = rates("bounded");
  EXPECT_GT(free[0], 3 * free[1]);
  EXPECT_NEAR(bound[0], bound[1], 0.15 * bound[1]);
}

const std::string kNoisy =
    "rehearse: 1\nmodel: {family: mlp, widths: [512, 512], loss: mse}\n"
    "plan: {micro_batch: 64, servers: 2}\ntraining: {precision: fp32, optimizer: sgd, clip: 0}\n"
    "cluster: {topology: dgx-a100, gpus: 4}\nnoise: {rank_step: {uniform: [0.5, 1.5]}, transfers: 0.1}\n";

result::Result sampled(const std::vector<std::string>& plan, int samples, int threads = 1, std::int64_t seed = 0) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.samples = samples, options.threads = threads;
  std::vector<std::string> all = plan;
  all.push_back("noise.seed=" + std::to_string(seed));
  return run::simulate_scenario(scenario_from(kNoisy, all), options);
}

TEST(ParameterServersSimulated, SamplesAreDraws) {
  for (const char* consistency : {"synchronous", "asynchronous", "bounded"}) {
    const std::vector<std::string> plan = {std::string("plan.consistency=") + consistency};
    const result::Result drawn = sampled(plan, 7), again = sampled(plan, 7, 3);
    EXPECT_EQ(without_engine(drawn), without_engine(again)) << consistency;
    EXPECT_EQ(drawn.samples.count, 7);
    EXPECT_EQ(drawn.samples.step_ps.p50, drawn.step_time_ps) << "the reported sample is the median one";
    EXPECT_LT(drawn.samples.least_ps, drawn.samples.step_ps.p50);
    EXPECT_LT(drawn.samples.step_ps.p50, drawn.samples.most_ps);
    // The first sample is the run without samples.
    EXPECT_EQ(sampled(plan, 1).step_time_ps, sampled(plan, 0).step_time_ps);
  }
}

// What is paid for are the devices that there are.
TEST(ParameterServersSimulated, DevicesOfTheirOwnCount) {
  const result::Result own = sampled({"plan.server_devices=own"}, 0),
                       beside = sampled({"plan.server_devices=workers"}, 0);
  EXPECT_EQ(own.servers.own_devices, 2);
  EXPECT_EQ(beside.servers.own_devices, 0);
  for (const result::Result* r : {&own, &beside}) {
    const auto devices = static_cast<double>(r == &own ? 6 : 4);
    EXPECT_DOUBLE_EQ(static_cast<double>(result::paid_devices(*r)), devices);
    EXPECT_DOUBLE_EQ(r->tokens_per_s_per_gpu, r->tokens_per_s / devices);
    EXPECT_DOUBLE_EQ(result::gpu_hours(*r, 1e9), 1e9 / r->tokens_per_s / 3600 * devices);
  }
}

}  // namespace
}  // namespace rehearse::servers_property_test
