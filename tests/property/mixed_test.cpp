// Mixed clusters: nodes of one kind in them are as they are by themselves, every rank is as one of those alike, and a
// stage has to fit on its own devices.
#include <gtest/gtest.h>

#include "sim/run/prepared.h"
#include "sim/run/run.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr char kSmall[] =
    "rehearse: 1\nmodel: {family: llama, layers: 12, hidden: 1024, heads: 16, ffn_hidden: 4096, vocab: 32000, "
    "max_seq_len: 512}\nplan: {tensor: 4, pipeline: 2, zero: 1}\ntraining: {global_batch: 64, precision: bf16}\n"
    "cluster: ";
const std::string kTwo = "{nodes: [{topology: dgx-h100, count: 2}, {topology: dgx-a100, count: 2}]}";

result::Result simulated_on(const std::string& cluster, std::vector<std::string> assignments = {}, bool fold = true) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.fold = fold;
  return run::simulate_scenario(scenario_from(kSmall + cluster + "\n", std::move(assignments)), options);
}

TEST(MixedCluster, NodesOfOneKindTwiceAreThatTopology) {
  for (const char* name : {"dgx-a100", "dgx-h100"}) {
    const std::string entry = std::string("{topology: ") + name + ", count: 2}";
    const auto twice = simulated_on("{nodes: [" + entry + ", " + entry + "]}");
    const auto plain = simulated_on(std::string("{topology: ") + name + ", gpus: 32}");
    EXPECT_EQ(twice.step_time_ps, plain.step_time_ps) << name;
    EXPECT_EQ(twice.peak_flops_per_gpu, plain.peak_flops_per_gpu);
    EXPECT_EQ(twice.memory_capacity, plain.memory_capacity);
    EXPECT_EQ(twice.energy.joules(), plain.energy.joules());
  }
}

TEST(MixedCluster, GroupsOfOneKindGoAsInAClusterOfIt) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const run::Machine mixed(scenario_from(kSmall + kTwo + "\n"), options);
  const run::Machine h100(scenario_from(kSmall + std::string("{topology: dgx-h100, gpus: 16}\n")), options);
  const run::Machine a100(scenario_from(kSmall + std::string("{topology: dgx-a100, gpus: 16}\n")), options);
  std::vector<int> first, second, all;
  for (int d = 0; d < 16; ++d) first.push_back(d), second.push_back(16 + d);
  all = first, all.insert(all.end(), second.begin(), second.end());
  for (const std::int64_t mb : {1, 64, 1024}) {
    const Bytes bytes(mb << 20);
    const auto time = [&](const run::Machine& machine, const std::vector<int>& members) {
      return machine.collectives.model().collective(program::CollectiveKind::all_reduce, members, bytes).alone();
    };
    EXPECT_EQ(time(mixed, first), time(h100, first)) << mb;
    EXPECT_EQ(time(mixed, second), time(a100, first)) << mb;
    EXPECT_GE(time(mixed, all), time(mixed, first)) << mb;
    const auto across = mixed.collectives.model().collective(program::CollectiveKind::all_reduce, all, bytes);
    EXPECT_EQ(across.coverage, collective::Coverage::spec) << "nobody measured it";
    EXPECT_NE(across.protocol, "ll128") << "not among Ampere and Hopper";
  }
}

TEST(MixedCluster, FoldedIsEveryRank) {
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{"plan.layers_per_stage=by_time"},
        {"plan.rank_order=[pipeline, tensor, context, expert, data]"},  // every stage on both kinds
        {"plan.pipeline=1", "plan.zero=3"},
        {"plan.schedule=interleaved", "plan.chunks=2", "plan.layers_per_stage=by_time"}}) {
    const auto folded = simulated_on(kTwo, plan), every = simulated_on(kTwo, plan, false);
    EXPECT_EQ(folded.step_time_ps, every.step_time_ps) << plan.front();
    EXPECT_EQ(folded.breakdown_ps, every.breakdown_ps) << plan.front();
    EXPECT_EQ(folded.coverage, every.coverage) << plan.front();
    EXPECT_LT(folded.ranks_simulated, every.ranks_simulated) << plan.front();
  }
}

TEST(MixedCluster, StagesSayTheirDevicesAndFitOnThem) {
  const std::string small = "{nodes: [{topology: dgx-a100, count: 2}, {topology: dgx-a100-40g, count: 2}]}";
  const auto r = simulated_on(small);
  ASSERT_EQ(r.stages.size(), 2U);
  EXPECT_EQ(r.stages[0].device, "a100-sxm-80g");
  EXPECT_EQ(r.stages[1].device, "a100-sxm-40g");
  EXPECT_GT(r.stages[0].capacity, r.stages[1].capacity);
  EXPECT_TRUE(r.memory_fits);
  EXPECT_EQ(r.scenario.at("cluster.device"), "16 a100-sxm-80g, 16 a100-sxm-40g");
  // More than the second stage's devices have, less than the first one's.
  const auto tight = simulated_on(
      small, {"cluster.headroom=" + std::to_string(r.stages[1].capacity - r.stages[1].peak + 1'000'000) + "B"});
  EXPECT_FALSE(tight.memory_fits);
  EXPECT_EQ(result::tightest(tight.stages)->stage, 1);
  EXPECT_LT(tight.stages[0].peak, tight.stages[0].capacity - tight.stages[0].headroom);
  const auto both = simulated_on(small, {"plan.rank_order=[pipeline, tensor, context, expert, data]"});
  EXPECT_EQ(both.stages[0].device, "a100-sxm-80g, a100-sxm-40g");
  EXPECT_EQ(both.stages[0].capacity, r.stages[1].capacity) << "the least of the two";
}

TEST(MixedCluster, MfuIsOverTheSumOfPeaks) {
  const auto h = simulated_on("{topology: dgx-h100, gpus: 32}"), a = simulated_on("{topology: dgx-a100, gpus: 32}");
  const auto both = simulated_on(kTwo);
  EXPECT_DOUBLE_EQ(both.peak_flops_per_gpu, (h.peak_flops_per_gpu + a.peak_flops_per_gpu) / 2);
  EXPECT_GT(both.step_time_ps, h.step_time_ps);
  EXPECT_GT(both.energy.joules(), 0);
  EXPECT_NEAR(both.energy.limit_w, (h.energy.limit_w + a.energy.limit_w) / 2, 1e-9);
}

TEST(MixedCluster, ByTimeIsNoSlowerThanAnEvenSplit) {
  for (const std::string& cluster : {std::string("{topology: dgx-h100, gpus: 32}"), kTwo})
    for (const char* plan : {"plan.tensor=4", "plan.tensor=8", "plan.sequence_parallel=true"})
      EXPECT_LE(simulated_on(cluster, {plan, "plan.layers_per_stage=by_time"}).step_time_ps,
                simulated_on(cluster, {plan}).step_time_ps)
          << cluster << " " << plan;
}

TEST(MixedCluster, ASlowNodeIsNoiseOnItsRanks) {
  const auto plain = simulated_on(kTwo, {"plan.layers_per_stage=by_time"});
  const auto slow = simulated_on(kTwo, {"plan.layers_per_stage=by_time",
                                        "noise.slow_ranks=[{ranks: [8, 9, 10, 11, 12, 13, 14, 15], factor: 1.5}]"});
  EXPECT_GT(slow.step_time_ps, plain.step_time_ps);
  ASSERT_TRUE(slow.noise.known);
  EXPECT_EQ(slow.noise.without_ps, plain.step_time_ps) << "without it the step is that of the sound cluster";
}

}  // namespace
}  // namespace rehearse
