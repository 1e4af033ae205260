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

// Bytes that PyTorch's ring moves around attention's kernels, rank by rank and step by step as its loop has them, of
// queries and of keys and values of all heads in 16 bits.
struct Moved {
  double read = 0, written = 0;
  void kernel(double elements, double r, double w) { read += elements * r, written += elements * w; }
};
Moved ring_of_rank(double queries, int rank, int ranks, bool compiled, bool backward) {
  const double both = 2 * queries;  // keys and values, copied to all heads
  Moved m;
  m.kernel(both, 2, 2);                                                       // contiguous
  for (int i = 0; i + 1 < (compiled ? 2 : ranks); ++i) m.kernel(both, 2, 2);  // cat
  if (!backward) m.kernel(queries, 2, 4);                                     // the first output to fp32
  if (backward && !compiled) m.kernel(queries + both, 0, 4);                  // zeros
  for (int i = 0; i < ranks; ++i) {
    const bool rows_whole = i <= rank, keys_whole = i == 0 || i > rank;
    if (!backward && i > 0) {
      const double rows = rows_whole ? queries : queries / 2;
      if (compiled && rows_whole) m.kernel(queries, 2 + 4, 4);
      if (compiled && !rows_whole) m.kernel(queries, 1 + 4, 4);  // the half that changes, and the other
      if (compiled) continue;
      m.kernel(rows, 2, 4), m.kernel(rows, 4 + 4, 4), m.kernel(rows, 4, 4), m.kernel(rows, 4 + 4, 4);
      if (!rows_whole) m.kernel(queries, 4, 4);
    }
    if (!backward) continue;
    if (compiled) {
      m.kernel(queries, 4 + 2, 4), m.kernel(both, 4 + 2, 4);
      continue;
    }
    const auto sum = [&](double elements, bool whole) {
      m.kernel(whole ? elements : elements / 2, 4 + 2, 4);
      if (!whole) m.kernel(elements, 4, 4);
    };
    sum(queries, rows_whole), sum(both, keys_whole);
    m.kernel(both, 4, 4);  // joined for the next rank
  }
  m.kernel(backward ? queries + both : queries, 4, 2);
  return m;
}

TEST(ContextParallel, PyTorchAddsUpInFp32AroundItsKernels) {
  for (const bool compiled : {false, true})
    for (const int ranks : {2, 4}) {
      const auto scenario =
          scenario_from(kModel, {"cluster.topology=dgx-a100", "training.precision=bf16", "plan.zero=3",
                                 compiled ? "framework=torch-fsdp2-compile" : "framework=torch-fsdp2",
                                 "plan.context=" + std::to_string(ranks), "cluster.gpus=" + std::to_string(ranks)});
      const program::Program program = lower::lower(scenario);
      const double queries = static_cast<double>(kBatch * kSeq / ranks * kHeads * kHeadDim);
      for (const bool backward : {false, true}) {
        Moved mean;
        for (int rank = 0; rank < ranks; ++rank) {
          const Moved m = ring_of_rank(queries, rank, ranks, compiled, backward);
          mean.read += m.read / ranks, mean.written += m.written / ranks;
        }
        int found = 0;
        for (const program::Body& b : program.roles.front().bodies)
          for (const program::Op& op : b.ops) {
            if (op.name != (backward ? "d_layer0.attention.keys.0" : "layer0.attention.keys.0")) continue;
            ++found;
            EXPECT_DOUBLE_EQ(static_cast<double>(op.passes.read), mean.read) << compiled << ranks << backward;
            EXPECT_DOUBLE_EQ(static_cast<double>(op.passes.written), mean.written) << compiled << ranks << backward;
          }
        EXPECT_GE(found, 1);
      }
    }
}

}  // namespace
}  // namespace rehearse
