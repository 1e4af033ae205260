// The broadcast of first weights against closed forms, on the plain ring model (no latency): the line from the first
// rank has every byte once on each edge.
#include "sim/account/first_weights.h"

#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse {
namespace {

const std::string kSentModel =
    "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 1024, max_seq_len: 256}\n"
    "training: {first_weights: broadcast}\n";

double model_bytes(const plan::Scenario& s) {
  return 4.0 * static_cast<double>(model::parameter_count(s.model));
}

double broadcast_seconds(const plan::Scenario& s, const std::string& topology = "dgx-a100",
                         const cluster::Overrides& overrides = {}) {
  const account::FirstWeights first = account::first_weights(s, lower::lower(s));
  const plan::RankGrid grid = s.grid();
  EXPECT_EQ(violations(first.program, grid), "");
  const auto cluster = cluster::build_cluster(topology, grid.ranks(), overrides, 0, REHEARSE_SOURCE_DIR);
  engine::Options options;
  options.steps = 1;
  return engine::simulate(first.program, grid, *cluster, *collective::make_plain_model(*cluster, Time()),
                          GivenCosts([](const program::Op&) { return Time(); }), options)
      .step_time.seconds();
}

double port_rate(cluster::ResourceKind kind, int gpus) {
  const auto cluster = cluster::build_cluster("dgx-a100", gpus, {}, 0, REHEARSE_SOURCE_DIR);
  for (const auto& r : cluster->resources())
    if (r.kind == kind) return static_cast<double>(r.capacity.per_s());
  return 0;
}

TEST(FirstWeights, TakeTheModelOverTheBandwidthHoweverManyRanks) {
  for (const int n : {2, 4, 8}) {
    const plan::Scenario s = scenario_from(kSentModel, {"cluster.gpus=" + std::to_string(n)});
    const double expected = model_bytes(s) / port_rate(cluster::ResourceKind::nvlink, 8);
    EXPECT_NEAR(broadcast_seconds(s), expected, expected * 1e-5) << n;
  }
}

// Two nodes, tensor parallelism within them: eight pairs of ranks, a NIC each.
TEST(FirstWeights, OfTensorParallelRanksGoOverTheNodesNicsSideBySide) {
  const plan::Scenario s = scenario_from(kSentModel, {"cluster.gpus=16", "plan.tensor=8"});
  double bytes = 0;
  for (const account::FirstMessage& m : account::first_messages(s, lower::lower(s), lower::lower(s).roles.front()))
    bytes += 4.0 * static_cast<double>(m.elements);
  EXPECT_LT(bytes, model_bytes(s) / 4);
  const double expected = bytes / port_rate(cluster::ResourceKind::nic, 16);
  EXPECT_NEAR(broadcast_seconds(s), expected, expected * 1e-5);
}

// Of 2 groups of 4 that shard together: within each, then between them.
TEST(FirstWeights, OfGroupsOfReplicasGoTwice) {
  const plan::Scenario s = scenario_from(kSentModel, {"cluster.gpus=8", "plan.zero=3", "plan.zero_group=4"});
  const double expected = 2 * model_bytes(s) / port_rate(cluster::ResourceKind::nvlink, 8);
  EXPECT_NEAR(broadcast_seconds(s), expected, expected * 1e-5);
}

// Tables of sparse features that one rank has are its own: the rest of the model is sent.
TEST(FirstWeights, LeaveOutWhatOneRankAloneHas) {
  const plan::Scenario s =
      plan::read_scenario(std::string(REHEARSE_SOURCE_DIR) + "/scenarios/dlrm-tiny-4.yaml",
                          {"framework=rehearse", "training.first_weights=broadcast"}, REHEARSE_SOURCE_DIR);
  const program::Program trained = lower::lower(s);
  const account::FirstWeights first = account::first_weights(s, trained);
  EXPECT_EQ(violations(first.program, s.grid()), "");
  for (std::size_t r = 0; r < trained.roles.size(); ++r) {
    std::int64_t all = 0;
    for (const program::Buffer& b : trained.roles[r].buffers)
      if (b.init.kind != program::Init::Kind::none && !b.init.global_shape.empty()) all += b.elements();
    ASSERT_EQ(first.messages[r].size(), 1U);
    EXPECT_EQ(first.messages[r].front().elements, first.messages[0].front().elements) << r;
    EXPECT_LT(first.messages[r].front().elements, all) << r;
  }
}

TEST(FirstWeights, AreNothingWhereRanksDrawTheirOwn) {
  const plan::Scenario s = scenario_from(kSentModel, {"cluster.gpus=8", "training.first_weights=seeded"});
  EXPECT_FALSE(account::first_weights(s, lower::lower(s)).any());
}

TEST(FirstWeights, AreWhatTheFrameworkDoes) {
  for (const auto& [framework, word] : {std::pair{"torch-ddp", plan::FirstWeights::broadcast},
                                        {"megatron-core", plan::FirstWeights::seeded},
                                        {"deepspeed", plan::FirstWeights::broadcast},
                                        {"torch-fsdp2", plan::FirstWeights::seeded},
                                        {"accelerate", plan::FirstWeights::broadcast},
                                        {"mxnet", plan::FirstWeights::broadcast}}) {
    const std::string text = kSentModel.substr(0, kSentModel.find("training"));
    EXPECT_EQ(scenario_from(text, {"cluster.gpus=8", std::string("framework=") + framework}).training.first_weights,
              word)
        << framework;
  }
}

}  // namespace
}  // namespace rehearse
