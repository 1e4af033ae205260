// Key-value heads that several ranks of a tensor group have in common: folded is unfolded, the sums are over the ranks
// that have a head, and memory is that of a head a rank.
#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse {
namespace {

const std::string kGrouped =
    "rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 128, heads: 16, kv_heads: 4, ffn_hidden: 256, vocab: 512, "
    "max_seq_len: 64}\ncluster: {topology: dgx-a100, gpus: 32}\nframework: rehearse\n"
    "plan: {tensor: 8, micro_batch: 1}\ntraining: {global_batch: 8, precision: bf16}\n";

engine::Outcome outcome_of(const plan::Scenario& scenario, bool fold) {
  const plan::RankGrid grid = scenario.grid();
  const auto cluster = cluster::build_cluster("dgx-a100", grid.ranks(), {}, 0, REHEARSE_SOURCE_DIR);
  const auto collectives = collective::make_plain_model(*cluster, Time());
  const GivenCosts costs(
      [](const program::Op& op) { return Time::from_ps(1'000'000 + 1000 * static_cast<int>(op.phase)); });
  engine::Options options;
  options.steps = 2;
  options.fold = fold;
  return engine::simulate(lower::lower(scenario), grid, *cluster, *collectives, costs, options);
}

TEST(KeyHeads, FoldedIsUnfolded) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"plan.zero=2"},
                                               {"plan.zero=3", "plan.sequence_parallel=true"},
                                               {"plan.pipeline=2"},
                                               {"model.kv_heads=2"},
                                               {"model.kv_heads=1"}}) {
    const plan::Scenario scenario = scenario_from(kGrouped, more);
    const engine::Outcome folded = outcome_of(scenario, true), all = outcome_of(scenario, false);
    EXPECT_EQ(folded.step_time, all.step_time) << testing::PrintToString(more);
    EXPECT_EQ(folded.breakdown_ps, all.breakdown_ps) << testing::PrintToString(more);
    EXPECT_LT(folded.ranks_simulated, all.ranks_simulated) << testing::PrintToString(more);
    EXPECT_EQ(all.ranks_simulated, 32);
  }
}

// Per layer, of hidden h and heads of d columns: a rank has heads / t queries, one key, one value, and the projection's
// part of its queries.
TEST(KeyHeads, MemoryIsOfOneHeadARank) {
  for (const std::int64_t keys : {1, 2, 4, 8}) {
    const plan::Scenario scenario = scenario_from(kGrouped, {"model.kv_heads=" + std::to_string(keys)});
    const program::Program program = lower::lower(scenario);
    std::int64_t parameters = 0;
    for (const program::Buffer& b : program.roles.front().buffers)
      if (b.cls == program::BufferClass::parameter && b.lifetime == program::Lifetime::persistent && !b.is_view())
        parameters += b.elements();
    const std::int64_t h = 128, d = 8, t = 8, layer = (16 / t + 2) * d * h + 16 / t * d * h + 3 * h * 256 / t + 2 * h;
    EXPECT_EQ(parameters, 4 * layer + h + 2 * 512 / t * h) << keys;
  }
}

}  // namespace
}  // namespace rehearse
