// What a context group sends: the bytes of each way of exchanging keys and values, and that all of attention is
// computed once, however the tokens lie.
#include <gtest/gtest.h>

#include "sim/account/program_facts.h"
#include "sim/plan/context_rows.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr std::int64_t kLayers = 2, kSeq = 32, kBatch = 3, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
const std::string kModel =
    "rehearse: 1\nmodel: {family: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64, vocab: 250, "
    "max_seq_len: 32}\nplan: {micro_batch: 3}\ntraining: {global_batch: 3}\n";

struct Split {
  plan::Scenario scenario;
  program::Program program;
};
Split split(const std::string& kind, int ranks) {
  const auto scenario =
      scenario_from(kModel, {"cluster.topology=dgx-a100", "plan.context_kind=" + kind,
                             "plan.context=" + std::to_string(ranks), "cluster.gpus=" + std::to_string(ranks)});
  return {scenario, lower::lower(scenario)};
}

// Elements that a rank hands to its context group in a body: of messages what it sends, of collectives their full size.
std::int64_t given(const program::Program& program, const std::string& body) {
  std::int64_t sum = 0;
  const program::Role& role = program.roles.front();
  for (const program::Body& b : role.bodies) {
    if (b.name != body) continue;
    for (const program::Op& op : b.ops) {
      if (const auto* c = std::get_if<program::Collective>(&op.shape))
        if (program.groups[static_cast<std::size_t>(c->group)].kind == program::GroupKind::context) sum += c->elements;
      if (const auto* p = std::get_if<program::PointToPoint>(&op.shape))
        for (const program::Leg& leg : p->legs)
          if (leg.send && leg.axis == Axis::context) sum += leg.elements;
    }
  }
  return sum;
}

TEST(ContextParallel, SendsWhatItsKindSays) {
  for (const int ranks : {2, 4}) {
    const std::int64_t tokens = kBatch * kSeq / ranks, keys = tokens * kKvHeads * 2 * kHeadDim;
    // Keys go on to all but their owner; backward they do so again, and their gradients once more than that, home.
    const Split ring = split("ring", ranks);
    EXPECT_EQ(given(ring.program, "forward"), kLayers * (ranks - 1) * keys);
    EXPECT_EQ(given(ring.program, "backward.last"), kLayers * (2 * ranks - 1) * keys);
    const Split gathered = split("all_gather", ranks);
    EXPECT_EQ(given(gathered.program, "forward"), kLayers * ranks * keys);
    EXPECT_EQ(given(gathered.program, "backward.last"), kLayers * 2 * ranks * keys) << "gathered again, and scattered";
    if (kKvHeads % ranks != 0) continue;
    const Split traded = split("all_to_all", ranks);
    const std::int64_t both = tokens * (2 * kHeads + 2 * kKvHeads) * kHeadDim;  // queries, keys, values; the output
    EXPECT_EQ(given(traded.program, "forward"), kLayers * both);
    EXPECT_EQ(given(traded.program, "backward.last"), kLayers * both);
  }
}

TEST(ContextParallel, ComputesAllOfAttentionOnce) {
  const Split whole = split("ring", 1);
  const double flops = account::hardware_flops(whole.program, whole.scenario.grid());
  for (const std::string kind : {"ring", "all_gather", "all_to_all"}) {
    const Split two = split(kind, 2);
    EXPECT_NEAR(account::hardware_flops(two.program, two.scenario.grid()) / flops, 1, 1e-12) << kind;
  }
}

// Each rank has half of what the last rank would have if tokens lay in order: two chunks, one from each end.
TEST(ContextParallel, TokensLieFromBothEnds) {
  plan::Plan plan;
  plan.context = 4;
  const auto runs = plan::context_tokens(plan, 32, 1);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].first, 4);
  EXPECT_EQ(runs[1].first, 24);
  const auto part = plan::part_of(runs, 2, 4);
  ASSERT_EQ(part.size(), 2U);
  EXPECT_EQ(part[0].first, 6);
  EXPECT_EQ(part[0].count, 2);
  EXPECT_EQ(part[1].first, 24);
  plan.context_kind = plan::ContextKind::all_to_all;
  const auto run = plan::context_tokens(plan, 32, 3);
  ASSERT_EQ(run.size(), 1U);
  EXPECT_EQ(run[0].first, 24);
  EXPECT_EQ(run[0].count, 8);
}

}  // namespace
}  // namespace rehearse
