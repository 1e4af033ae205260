// Workers and parameter servers (sim/engine/parameter_servers.h) against closed forms: means of the largest of uniform
// draws, staleness of equal workers, and what the links of a server carry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"
#include "sim/collective/collective.h"
#include "sim/engine/noise.h"
#include "sim/engine/parameter_servers.h"
#include "sim/run/run.h"
#include "tests/support/lowered.h"

namespace rehearse::servers_test {
namespace {

using engine::ServedRun;
using engine::ServedWork;
using plan::Consistency;

const Time kSecond = Time::from_seconds(1);

std::unique_ptr<cluster::Cluster> cluster_of(int devices, const char* topology = "ethernet-a100") {
  return cluster::build_cluster(topology, devices, {}, 0, REHEARSE_SOURCE_DIR);
}

// Messages and updates take no time; an iteration takes a second.
ServedWork free_work(Consistency consistency, int workers, std::int64_t iterations, int servers = 1) {
  ServedWork work;
  work.workers = work.counted = workers, work.servers = servers;
  work.consistency = consistency, work.iterations = iterations;
  work.compute = [](int, std::int64_t) { return kSecond; };
  work.pulls.resize(static_cast<std::size_t>(workers * servers));
  work.pushes = work.pulls;
  work.update.resize(static_cast<std::size_t>(servers));
  work.add = work.update;
  return work;
}

// An iteration takes U(0.8, 1.2) s, drawn for each worker and iteration.
ServedWork drawn_work(Consistency consistency, int workers, std::int64_t iterations, std::int64_t seed) {
  ServedWork work = free_work(consistency, workers, iterations);
  plan::Noise noise;
  noise.seed = seed, noise.rank_step = {0.8, 1.2};
  const engine::Noise draws(noise, 0, {}, workers);
  work.compute = [draws](int worker, std::int64_t iteration) {
    return engine::times(kSecond, draws.kernel(worker, static_cast<std::int32_t>(iteration), 0, 0));
  };
  return work;
}

double mean_step(const ServedRun& run) {
  return run.steps.back().seconds() / static_cast<double>(run.steps.size());
}

// In the mean over workers: what each takes for its iterations, over their number.
double mean_iteration(const ServedRun& run) {
  double sum = 0;
  for (const auto& own : run.iterations) sum += own.back().ended.seconds() / static_cast<double>(own.size());
  return sum / static_cast<double>(run.iterations.size());
}

// The largest of n draws of U(0.8, 1.2) is 0.8 + 0.4 n / (n + 1) in the mean, the k-th of n 0.8 + 0.4 k / (n + 1).
TEST(ParameterServers, AStepIsTheSlowestOfItsWorkers) {
  const auto cluster = cluster_of(6);
  constexpr std::int64_t kSteps = 40'000;
  EXPECT_NEAR(mean_step(run_servers(drawn_work(Consistency::synchronous, 4, kSteps, 1), *cluster)), 1.12, 0.002);
  ServedWork spare = drawn_work(Consistency::synchronous, 5, kSteps, 2);
  spare.counted = 4;
  const ServedRun run = run_servers(spare, *cluster);
  EXPECT_NEAR(mean_step(run), 0.8 + 0.4 * 4 / 6, 0.002);
  std::int64_t dropped = 0;
  for (const auto& own : run.iterations)
    dropped += std::count_if(own.begin(), own.end(), [](const auto& i) { return !i.counted; });
  EXPECT_NEAR(static_cast<double>(dropped), static_cast<double>(kSteps), 1) << "one a step";
  EXPECT_NEAR(mean_iteration(run_servers(drawn_work(Consistency::asynchronous, 4, kSteps, 3), *cluster)), 1, 0.001);
}

// 50 synchronous steps that take 1.1 times the largest of 4 draws, against as many asynchronous iterations that take
// 1.05 times their own, each drawn anew: 1.12 * 1.1 / 1.05 = 1.173 in the mean; and 95% of runs lie within 1.96
// standard deviations. Relative ones: of the mean of 50 largest sqrt(4 / (25 * 6)) * 0.4 / 1.12 / sqrt(50) = 0.00825,
// of 200 draws 0.4 / sqrt(12 * 200) = 0.00816; together 0.0116: 1.146 to 1.201.
TEST(ParameterServers, WhatNotWaitingGains) {
  const auto cluster = cluster_of(5);
  constexpr int kRuns = 1000;
  double sum = 0;
  int within = 0;
  for (int k = 0; k < kRuns; ++k) {
    const double together = mean_step(run_servers(drawn_work(Consistency::synchronous, 4, 50, 2 * k), *cluster));
    const double apart = mean_iteration(run_servers(drawn_work(Consistency::asynchronous, 4, 50, 2 * k + 1), *cluster));
    const double ratio = together * 1.1 / (apart * 1.05);
    sum += ratio;
    within += 1.146 <= ratio && ratio <= 1.201 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kRuns, 1.1733, 0.0015);
  EXPECT_NEAR(within / static_cast<double>(kRuns), 0.95, 0.02);  // 3 standard deviations of 1000 runs
}

TEST(ParameterServers, EqualWorkersAreAllOthersBehind) {
  for (const int workers : {1, 2, 4, 8})
    for (const int servers : {1, 3}) {
      ServedWork work = free_work(Consistency::asynchronous, workers, 20, servers);
      std::fill(work.update.begin(), work.update.end(), Time::from_us(10));
      const ServedRun run = run_servers(work, *cluster_of(workers + servers));
      std::vector<std::int64_t> expected(static_cast<std::size_t>(workers), 0);
      expected.back() = 19 * workers * servers;
      EXPECT_EQ(account::staleness_of(run.events, 1, 20), expected) << workers << " workers";
    }
}

// Of what comes at the same time the server takes lower ranks first, a worker's push before its pull.
TEST(ParameterServers, TiesGoByRank) {
  const ServedRun run = run_servers(free_work(Consistency::asynchronous, 3, 2), *cluster_of(4));
  using account::ServerAct;
  const std::vector<account::ServerEvent> expected = {
      {0, 0, 0, ServerAct::pull},  {0, 1, 0, ServerAct::pull},  {0, 2, 0, ServerAct::pull},
      {0, 0, 0, ServerAct::apply}, {0, 0, 1, ServerAct::pull},  {0, 1, 0, ServerAct::apply},
      {0, 1, 1, ServerAct::pull},  {0, 2, 0, ServerAct::apply}, {0, 2, 1, ServerAct::pull},
      {0, 0, 1, ServerAct::apply}, {0, 1, 1, ServerAct::apply}, {0, 2, 1, ServerAct::apply}};
  EXPECT_EQ(run.events, expected);
}

// N workers on hosts of their own pull B bytes together, and push them together: each way the server's port carries
// N B bytes, so an iteration takes its computation and 2 N B / rate. And whatever the workers do, it takes N B / rate.
TEST(ParameterServers, AServersPortBoundsAll) {
  constexpr std::int64_t kBytes = 100'000'000;
  const auto cluster = cluster::build_cluster("ethernet-a100", 8 * 5, {}, 0, REHEARSE_SOURCE_DIR);
  const int each = cluster->devices_per_node();
  ASSERT_EQ(cluster->nodes() * each, 40);
  const auto model = collective::make_plain_model(*cluster, Time());
  const int server = cluster->devices() - 1, hosts = cluster->nodes() - 1;
  for (const int workers : {1, 2, hosts}) {
    ServedWork work = free_work(Consistency::asynchronous, workers, 8);
    std::int64_t rate = INT64_MAX;
    for (int w = 0; w < workers; ++w) {
      work.pulls[static_cast<std::size_t>(w)] = model->send(server, w * each, Bytes(kBytes));
      work.pushes[static_cast<std::size_t>(w)] = model->send(w * each, server, Bytes(kBytes));
      for (const cluster::ResourceId r : cluster->route(server, w * each).resources)
        rate = std::min(rate, cluster->resources()[static_cast<std::size_t>(r)].capacity.per_s());
    }
    const double port = static_cast<double>(workers) * static_cast<double>(kBytes) / static_cast<double>(rate);
    const ServedRun together = run_servers(work, *cluster);
    for (const auto& own : together.iterations)
      EXPECT_NEAR((own[7].ended - own[6].ended).seconds(), 1 + 2 * port, 1e-6) << workers;
    work.compute = [](int worker, std::int64_t) { return Time::from_us(100 + 1'000 * worker); };
    work.iterations = 200;
    const ServedRun busy = run_servers(work, *cluster);
    double rates = 0;
    for (const auto& own : busy.iterations) rates += 150 / (own[199].ended - own[49].ended).seconds();
    EXPECT_GE(static_cast<double>(workers) / rates, port * (1 - 1e-6)) << "N B / rate a worker's iteration";
  }
}

// Of a whole scenario: what a file says comes out.
result::Result simulated_with(std::vector<std::string> assignments) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const std::string text =
      "rehearse: 1\nmodel: {family: mlp, widths: [4096, 4096, 4096], loss: mse}\nframework: rehearse\n"
      "cluster: {topology: ethernet-a100, gpus: 16}\n"
      "plan: {micro_batch: 32, servers: 1, consistency: asynchronous}\n"
      "training: {precision: fp32, optimizer: sgd, lr: 0.01, clip: 0}\n";
  return run::simulate_scenario(scenario_from(text, std::move(assignments)), options);
}

TEST(ParameterServers, OfAScenarioAreBoundByTheirPort) {
  const result::Result r = simulated_with({});
  const result::ParameterServers& p = r.servers;
  ASSERT_TRUE(p.known);
  EXPECT_EQ(p.parameter_bytes, (2 * 4096 * 4096 + 2 * 4096) * 4);
  EXPECT_NE(p.bound_by.find("nic"), std::string::npos) << p.bound_by;
  EXPECT_GT(p.busy, 0.8);
  EXPECT_LE(p.busy, 1 + 1e-9);
  std::int64_t sum = 0;
  for (const std::int64_t share : r.breakdown_ps) sum += share;
  EXPECT_EQ(sum, r.step_time_ps);
  EXPECT_NEAR(p.samples_per_s * static_cast<double>(r.step_time_ps) * 1e-12, 16 * 32, 1e-3);
  // Two servers on two hosts of their own carry half of it each, and more workers' updates come through.
  const result::Result beside = simulated_with({"plan.servers=2", "plan.server_devices=workers"});
  EXPECT_GT(beside.servers.updates_per_s, 1.3 * p.updates_per_s);
  EXPECT_EQ(beside.servers.fullest_server_bytes, (4096 * 4096 + 4096) * 4);
}

TEST(ParameterServers, NoiseIsDrawnByWorkerAndIteration) {
  const std::vector<std::string> calm = {"cluster.gpus=4", "cluster.topology=dgx-a100", "training.global_batch=128",
                                         "model.widths=[256, 256]"};
  std::vector<std::string> noisy = calm;
  noisy.push_back("noise.rank_step.uniform=[0.8, 1.2]");
  const result::ParameterServers one = simulated_with(noisy).servers;
  EXPECT_GT(one.staleness.size(), 4U) << "some are overtaken";
  EXPECT_NEAR(one.mean_staleness, 3, 0.1) << "by as many as they overtake";
  EXPECT_EQ(simulated_with(calm).servers.mean_staleness, 3);
  const result::Result whole = simulated_with(noisy);
  EXPECT_EQ(whole.breakdown_ps[static_cast<std::size_t>(result::Share::straggler)], 0) << "nobody waits for others";
  noisy.push_back("noise.seed=2");
  EXPECT_NE(simulated_with(noisy).servers.iterations_per_s, one.iterations_per_s);
}

}  // namespace
}  // namespace rehearse::servers_test
