// What-ifs whose answer is known: what is bound by one rate goes with it and with no other; samples and counterfactuals
// do not depend on the number of threads.
#include <gtest/gtest.h>

#include <map>

#include "sim/cluster/scaled.h"
#include "sim/cluster/topology.h"
#include "sim/collective/scaled_model.h"
#include "sim/run/run.h"
#include "tests/support/lowered.h"

namespace rehearse::run {
namespace {

result::Result simulated(const std::string& text, const Options& more = {}) {
  Options options = more;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.record = false;
  return simulate_scenario(scenario_from(text), options);
}

// The step with a lever at a half and at the double, over the step as it is.
std::map<std::string, std::pair<double, double>> what_ifs(const std::string& text) {
  Options options;
  options.what_if = true;
  options.threads = 2;
  const result::Result r = simulated(text, options);
  std::map<std::string, std::pair<double, double>> factors;
  const auto step = static_cast<double>(r.step_time_ps);
  for (const result::WhatIf& w : r.what_if)
    factors[w.what] = {static_cast<double>(w.halved_ps) / step, static_cast<double>(w.doubled_ps) / step};
  return factors;
}

// Two products of 16,384 squared and their gradients on one GPU. 3 % of the step moves memory.
const std::string kComputeBound =
    "rehearse: 1\nmodel: {family: mlp, widths: [16, 16384, 16384, 16384]}\ncluster: {topology: dgx-a100}\n"
    "plan: {micro_batch: 65536}\ntraining: {optimizer: sgd, clip: 0, weight_decay: 0}\n";

TEST(WhatIf, AComputeBoundStepHalvesWithComputeDoubled) {
  auto factors = what_ifs(kComputeBound);
  EXPECT_NEAR(factors.at("compute").second, 0.5, 0.03);
  EXPECT_NEAR(factors.at("compute").first, 2, 0.06);
  EXPECT_NEAR(factors.at("memory_bandwidth").second, 1, 0.03);
  for (const char* other : {"nvlink", "nic", "latency"}) {
    EXPECT_EQ(factors.at(other).first, 1) << other;
    EXPECT_EQ(factors.at(other).second, 1) << other;
  }
}

// 268 million parameters of gradients over NICs of 1 Gbit/s and little else: the ring's time is bytes over bandwidth.
TEST(WhatIf, ANicBoundDataParallelStepGoesWithTheNicAlone) {
  auto factors = what_ifs(
      "rehearse: 1\nmodel: {family: mlp, widths: [16384, 16384]}\n"
      "cluster: {topology: dgx-a100, gpus: 16, overrides: {nic: {bandwidth: 1Gbps}}}\n"
      "training: {optimizer: sgd, clip: 0, weight_decay: 0}\n");
  EXPECT_NEAR(factors.at("nic").second, 0.5, 0.02);
  EXPECT_NEAR(factors.at("nic").first, 2, 0.04);
  for (const char* other : {"compute", "memory_bandwidth", "nvlink"}) {
    EXPECT_NEAR(factors.at(other).first, 1, 0.02) << other;
    EXPECT_NEAR(factors.at(other).second, 1, 0.02) << other;
  }
}

// Start-up is all that a transfer of next to nothing takes.
TEST(WhatIf, LatencyActsOnStartUpAloneAndOnAllOfIt) {
  const auto cluster = cluster::build_cluster("dgx-a100", 8, {}, 0, REHEARSE_SOURCE_DIR);
  const auto plain = collective::make_plain_model(*cluster, Time::from_us(3));
  const auto slower = collective::scaled(collective::make_plain_model(*cluster, Time::from_us(3)), {2, 1});
  const std::vector<int> members = {0, 1, 2, 3};
  const auto kind = program::CollectiveKind::all_reduce;
  for (const std::int64_t bytes : {std::int64_t{4}, std::int64_t{1} << 30}) {
    const auto before = plain->collective(kind, members, Bytes(bytes));
    const auto after = slower->collective(kind, members, Bytes(bytes));
    EXPECT_EQ(before.startup, Time::from_us(2 * 3 * 3)) << "2 (n - 1) steps";
    EXPECT_EQ(after.startup, Time::from_us(2 * 2 * 3 * 3));
    ASSERT_EQ(after.activities.size(), before.activities.size());
    EXPECT_EQ(after.activities[0].min_duration, before.activities[0].min_duration);
  }
}

TEST(WhatIf, LinksOfAScaledClusterAreScaledByWhereTheyAre) {
  const auto cluster = cluster::build_cluster("dgx-a100", 16, {}, 0, REHEARSE_SOURCE_DIR);
  const auto scaled = cluster::scaled(*cluster, {3, 0.5});
  ASSERT_EQ(scaled->resources().size(), cluster->resources().size());
  for (std::size_t i = 0; i < cluster->resources().size(); ++i) {
    const cluster::Resource &before = cluster->resources()[i], &after = scaled->resources()[i];
    const bool inside = before.kind == cluster::ResourceKind::nvlink;
    EXPECT_EQ(after.capacity.per_s(), inside ? before.capacity.per_s() * 3 : before.capacity.per_s() / 2) << after.name;
    EXPECT_EQ(after.name, before.name);
  }
  EXPECT_EQ(scaled->route(0, 9).resources, cluster->route(0, 9).resources);
}

const std::string kNoisy =
    "rehearse: 1\nmodel: gpt2-small\ncluster: {topology: dgx-a100, gpus: 8}\nplan: {pipeline: 2}\n"
    "noise: {kernels: 0.05, transfers: 0.1, slow_ranks: [{ranks: [3], factor: 1.2}, {share: 0.2, factor: 1.05}]}\n";

TEST(Samples, TheNumberOfThreadsDoesNotMatter) {
  Options options;
  options.samples = 15;
  options.what_if = true;
  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    options.threads = 1 + 3 * i;
    result::Result r = simulated(kNoisy, options);
    r.wall_s = 0, r.peak_rss_bytes = 0;
    r.scenario_name = r.scenario_file = "";
    texts[i] = result::to_json(r);
  }
  EXPECT_TRUE(texts[0] == texts[1]);
}

TEST(Samples, TheReportedOneIsTheMedianAndOrderStatisticsAreOrdered) {
  Options options;
  options.samples = 21;
  const result::Result r = simulated(kNoisy, options);
  EXPECT_EQ(r.samples.count, 21);
  EXPECT_EQ(r.step_time_ps, r.samples.step_ps.p50);
  EXPECT_LE(r.samples.least_ps, r.samples.step_ps.p5);
  EXPECT_LT(r.samples.step_ps.p5, r.samples.step_ps.p50);
  EXPECT_LT(r.samples.step_ps.p50, r.samples.step_ps.p95);
  EXPECT_LE(r.samples.step_ps.p95, r.samples.most_ps);
}

// One slow rank in data parallel: what it costs is what the others wait for it, and nobody else is to blame.
TEST(Samples, ASlowRankIsNamedWithWhatItCosts) {
  const std::string quiet = "rehearse: 1\nmodel: gpt2-small\ncluster: {topology: dgx-a100, gpus: 8}\n";
  const result::Result fast = simulated(quiet);
  const result::Result slow = simulated(quiet + "noise: {slow_ranks: [{ranks: [3], factor: 1.2}]}\n");
  ASSERT_EQ(slow.noise.causes.size(), 1u);
  EXPECT_EQ(slow.noise.causes[0].what, "slow_rank");
  EXPECT_EQ(slow.noise.causes[0].rank, 3);
  EXPECT_EQ(slow.noise.causes[0].without_ps, fast.step_time_ps) << "the counterfactual is the run without it";
  EXPECT_EQ(slow.noise.without_ps, fast.step_time_ps);
  EXPECT_GT(slow.step_time_ps, fast.step_time_ps);
  EXPECT_FALSE(fast.noise.known);
}

TEST(Samples, ALinkNobodyHasIsAnErrorThatNamesSome) {
  try {
    simulated(
        "rehearse: 1\nmodel: gpt2-small\ncluster: {topology: dgx-a100, gpus: 8}\n"
        "noise: {links: [{resources: 'nick*', capacity: 0.5}]}\n");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.diagnostics().front().path, "noise.links[0].resources");
    EXPECT_NE(error.diagnostics().front().hint.find("node0/gpu0/nvlink-out"), std::string::npos);
  }
}

}  // namespace
}  // namespace rehearse::run
