// What is kept for backward of a layer with experts in 8 bits, key by key, and what goes over the wire, against hand
// counts: DeepSeek-V3's own savings (arXiv 2412.19437, sections 3.2.3 and 3.3).
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using program::Buffer;

constexpr std::int64_t kRowsTokens = 256, kRowsHidden = 256, kRowsFfn = 128, kRowsTop = 2,
                       kRowsChoices = kRowsTokens * kRowsTop;
const std::string kEightBitExperts =
    "rehearse: 1\nmodel: {family: moe, layers: 2, hidden: 256, heads: 4, vocab: 128, max_seq_len: 256, experts: 8, "
    "experts_per_token: 2, expert_ffn_hidden: 128}\nframework: megatron-core\n"
    "cluster: {topology: dgx-h100, gpus: 4}\nplan: {expert: 4, weigh_in_experts: false}\n"
    "training: {global_batch: 4, precision: fp8, fp8_recipe: blockwise}\n";

struct Saved {
  program::Program program;

  explicit Saved(const std::vector<std::string>& more) : program(lower::lower(scenario_from(kEightBitExperts, more))) {}
  // Bytes of layer 0 that live as long as a micro-batch.
  std::int64_t bytes() const { return bytes_of(""); }
  // Of those with names that go on with `what`.
  std::int64_t bytes_of(const std::string& what) const {
    std::int64_t sum = 0;
    for (const Buffer& b : program.roles.front().buffers)
      if (b.cls == program::BufferClass::activation && b.lifetime == program::Lifetime::micro_batch && !b.is_view() &&
          b.name.starts_with("layer0." + what))
        sum += b.bytes();
    return sum;
  }
  // Bytes that all-to-alls of layer 0 send, in `body`.
  std::int64_t sent(const std::string& body, const std::string& what) const {
    std::int64_t sum = 0;
    for (const program::Body& b : program.roles.front().bodies)
      for (const program::Op& op : b.ops)
        if (const auto* c = std::get_if<program::Collective>(&op.shape);
            c != nullptr && c->kind == program::CollectiveKind::all_to_all && b.name.starts_with(body) &&
            op.name.find("layer0") != std::string::npos && op.name.find(what) != std::string::npos)
          sum += c->elements * size_of(op.dtype);
    return sum;
  }
};

// An 8-bit copy with a scale of 4 bytes for 128 elements.
constexpr std::int64_t copy(std::int64_t elements) {
  return elements + elements / 128 * 4;
}

TEST(KeptLess, EachKeyLeavesOutWhatItSays) {
  const std::int64_t all = Saved({}).bytes();
  const auto less = [&](std::vector<std::string> more) { return all - Saved(more).bytes(); };
  const std::int64_t row = kRowsTokens * kRowsHidden, stats = kRowsTokens * 4;
  // The second norm's result, which the router reads in 16 bits, and its statistics; the first one's 8-bit copy by
  // columns, and its statistics.
  EXPECT_EQ(less({"plan.recompute_norms=true"}), row * 2 + copy(row) + 2 * stats);
  EXPECT_EQ(less({"plan.recompute_expert_activation=true"}), copy(kRowsChoices * kRowsFfn));
  EXPECT_EQ(less({"training.fp8_activation_input=true"}),
            kRowsChoices * 2 * kRowsFfn * 2 - copy(kRowsChoices * 2 * kRowsFfn));
  // What comes back is not kept; the rows' weights are.
  EXPECT_EQ(less({"plan.weigh_in_experts=true"}), kRowsChoices * kRowsHidden * 2 - kRowsChoices * 4);
  // What was kept was cast by columns; now it is what came, by rows.
  EXPECT_EQ(less({"training.fp8_dispatch=true"}), 0);
  // In the place of 16 bits for attention's backward and 8 for the projection's.
  EXPECT_EQ(less({"training.e5m6_attention_output=true"}), row * 2 + copy(row) - (row * 3 / 2 + row / 128 * 4));
}

TEST(KeptLess, ProgramsAreSound) {
  for (const char* dispatch : {"all_to_all", "forwarding"})
    for (const char* schedule : {"1f1b", "zero_bubble", "dualpipe"}) {
      const auto scenario = scenario_from(
          kEightBitExperts,
          {"cluster.gpus=8", "plan.pipeline=2", std::string("plan.expert_dispatch=") + dispatch,
           std::string("plan.schedule=") + schedule, "training.global_batch=32", "model.layers=4",
           "plan.recompute_norms=true", "plan.recompute_expert_activation=true", "plan.weigh_in_experts=true",
           "training.fp8_dispatch=true", "training.fp8_activation_input=true", "training.e5m6_attention_output=true"});
      EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "") << dispatch << " " << schedule;
    }
}

// Recomputed op by op what came stays as it came, with the rows' weights, and nothing is traded again.
TEST(KeptLess, WhatCameInEightBitsIsNotTradedAgain) {
  const std::int64_t rows = kRowsChoices * kRowsHidden;
  for (const char* dispatch : {"all_to_all", "forwarding"}) {
    const std::vector<std::string> plan = {"training.fp8_dispatch=true", "plan.weigh_in_experts=true",
                                           std::string("plan.expert_dispatch=") + dispatch};
    const auto with = [&](const std::string& recompute) {
      std::vector<std::string> all = plan;
      all.push_back("plan.recompute=" + recompute);
      const auto scenario = scenario_from(kEightBitExperts, all);
      EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "") << dispatch << " " << recompute;
      return Saved(all);
    };
    const Saved none = with("none"), ops = with("ops"), full = with("full");
    EXPECT_EQ(ops.sent("backward", ""), none.sent("backward", "")) << dispatch;
    EXPECT_GT(full.sent("backward", ""), none.sent("backward", "")) << dispatch;
    EXPECT_EQ(ops.bytes_of("experts.dispatch.traded"), copy(rows)) << dispatch;
    EXPECT_EQ(ops.bytes_of("experts.dispatch.along"), kRowsChoices * 4) << dispatch;
    EXPECT_EQ(full.bytes_of("experts.dispatch"), 0) << dispatch;
  }
}

TEST(KeptLess, DispatchInEightBitsSendsAByteAndScales) {
  const std::int64_t rows = kRowsChoices * kRowsHidden;
  const Saved wide({}), narrow({"training.fp8_dispatch=true"});
  EXPECT_EQ(wide.sent("forward", "dispatch"), rows * 2);
  EXPECT_EQ(narrow.sent("forward", "dispatch"), copy(rows));
  EXPECT_EQ(narrow.sent("forward", "combine"), rows * 2) << "what comes back is 16 bits";
  EXPECT_EQ(wide.sent("backward", "combine"), rows * 2);
  EXPECT_EQ(narrow.sent("backward", "combine"), copy(rows)) << "the gradient of what came back";
  EXPECT_EQ(narrow.sent("backward", "dispatch"), rows * 2);
}

// In a trade of their own; where rows are forwarded, in the same one.
TEST(KeptLess, WeightsGoWithTheRows) {
  const Saved apart({"plan.weigh_in_experts=true"}),
      along({"plan.weigh_in_experts=true", "plan.expert_dispatch=forwarding"});
  EXPECT_EQ(apart.sent("forward", "along"), kRowsChoices * 4);
  EXPECT_EQ(apart.sent("backward", "along"), kRowsChoices * 4);
  EXPECT_EQ(along.sent("forward", "along"), 0);
}

}  // namespace
}  // namespace rehearse
