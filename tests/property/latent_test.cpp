// What latent attention keeps, computes and sends: closed forms of its activations, of its products and of what a
// tensor group trades.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/account/program_facts.h"
#include "tests/support/lowered.h"

namespace rehearse::latent_property {
namespace {

constexpr std::int64_t kLayers = 3, kTokens = 2 * 32, kHidden = 48, kHeads = 4, kQuery = 20, kLatent = 12, kNope = 6,
                       kRope = 4, kValue = 7, kQk = kNope + kRope;
const std::string kModel =
    "rehearse: 1\nmodel: {family: llama, layers: 3, hidden: 48, heads: 4, ffn_hidden: 64, vocab: 256, max_seq_len: 32, "
    "q_lora_rank: 20, kv_lora_rank: 12, qk_nope_head_dim: 6, qk_rope_head_dim: 4, v_head_dim: 7, attention: flash}\n"
    "plan: {micro_batch: 2}\ntraining: {global_batch: 8, precision: bf16}\n";

struct Lowered {
  plan::Scenario scenario;
  program::Program program;
};
Lowered lowered(std::vector<std::string> assignments) {
  assignments.emplace_back("cluster.topology=dgx-a100");
  const auto scenario = scenario_from(kModel, assignments);
  return {scenario, lower::lower(scenario)};
}

// Elements of a micro-batch's activations of layer 0 whose names begin with `prefix`.
std::int64_t kept(const Lowered& l, const std::string& prefix) {
  std::int64_t sum = 0;
  for (const program::Buffer& b : l.program.roles.front().buffers)
    if (b.cls == program::BufferClass::activation && b.lifetime == program::Lifetime::micro_batch &&
        b.name.starts_with("layer0." + prefix))
      sum += b.elements();
  return sum;
}

double flops(const Lowered& l) {
  return account::hardware_flops(l.program, l.scenario.grid());
}

// Of one layer's attention in a body: elements of the collectives of one kind over the tensor group.
std::int64_t sent(const Lowered& l, const std::string& body, program::CollectiveKind kind) {
  std::int64_t sum = 0;
  for (const program::Body& b : l.program.roles.front().bodies)
    for (const program::Op& op : b.ops)
      if (const auto* c = std::get_if<program::Collective>(&op.shape);
          c != nullptr && b.name == body && c->kind == kind && op.name.find("layer1.attention") != std::string::npos)
        sum += c->elements;
  return sum;
}

TEST(LatentAttention, ProgramsHoldTheParametersCounted) {
  const Lowered l = lowered({"cluster.gpus=1"});
  std::int64_t elements = 0;
  for (const program::Buffer& b : l.program.roles.front().buffers)
    if (b.cls == program::BufferClass::parameter && b.is_view() && !b.init.global_shape.empty())
      elements += b.elements();
  EXPECT_EQ(elements, model::parameter_count(l.scenario.model));
}

// The latents before and after their norms, one statistic a row of each, the packed heads, attention's output and its
// logarithms of sums. Made again from the latents: these before their norms, and the columns that keys share.
TEST(LatentAttention, KeepsLatentsAndHeadsOrLatentsAlone) {
  const std::int64_t heads = kHeads * (2 * kQk + kValue), out = kHeads * (kValue + 1);
  EXPECT_EQ(kept(lowered({"cluster.gpus=1"}), "attention."),
            kTokens * (2 * (kQuery + kLatent) + 2 + heads + out) + kTokens * kHidden);
  EXPECT_EQ(kept(lowered({"cluster.gpus=1", "plan.recompute_latent=true"}), "attention."),
            kTokens * (kQuery + kLatent + kRope + out) + kTokens * kHidden);
  const Lowered split = lowered({"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true"});
  EXPECT_EQ(kept(split, "attention."),
            kTokens / 2 * (2 * (kQuery + kLatent) + 2) + kTokens * (heads + out) / 2 + kTokens / 2 * kHidden);
}

// Op by op: the first and third product, which are those down, the fifth, which is the branch's output, and attention's
// results; of the other layer's branch the seventh, its up-projection. Without a latent of queries: these, as the first
// product, the third, up to keys and values, and the fifth, which is the gate.
TEST(LatentAttention, OpByOpKeepsEverySecondProduct) {
  const std::int64_t out = kHeads * (kValue + 1), ffn = 64;
  const auto of_queries = lowered({"cluster.gpus=1", "plan.recompute=ops"}),
             from_token = lowered({"cluster.gpus=1", "plan.recompute=ops", "model.q_lora_rank=0"});
  EXPECT_EQ(kept(of_queries, "attention."), kTokens * (kQuery + kLatent + kRope + out) + kTokens * kHidden);
  EXPECT_EQ(kept(from_token, "attention."), kTokens * kHeads * (kQk + kNope + kValue) + kTokens * out);
  for (const auto* l : {&of_queries, &from_token}) {
    EXPECT_EQ(kept(*l, "mlp.up"), l == &of_queries ? kTokens * ffn : 0);
    EXPECT_EQ(kept(*l, "mlp.gate"), l == &of_queries ? 0 : kTokens * ffn);
    EXPECT_EQ(kept(*l, "norm") + kept(*l, "mlp.activation"), 0);
  }
  const auto more = [](const Lowered& ops, std::vector<std::string> model) {
    model.emplace_back("cluster.gpus=1");
    return flops(ops) - flops(lowered(model));
  };
  const auto products = [](std::int64_t weights) { return 2.0 * static_cast<double>(kLayers * 4 * kTokens * weights); };
  EXPECT_DOUBLE_EQ(more(of_queries, {}),
                   products(kQuery * kHeads * kQk + kLatent * kHeads * (kNope + kValue) + kHidden * ffn));
  EXPECT_DOUBLE_EQ(more(from_token, {"model.q_lora_rank=0"}),
                   products(kHidden * (kLatent + kRope) + kHeads * kValue * kHidden + kHidden * ffn));
}

// What is done again are the products up, of every layer and sequence.
TEST(LatentAttention, MakesTheProductsUpAgain) {
  const std::int64_t up = kQuery * kHeads * kQk + kLatent * kHeads * (kNope + kValue);
  const double more = 2.0 * static_cast<double>(kLayers * 4 * kTokens * up);
  EXPECT_DOUBLE_EQ(
      flops(lowered({"cluster.gpus=1", "plan.recompute_latent=true"})) - flops(lowered({"cluster.gpus=1"})), more);
}

// With sequence parallelism the latents and the shared columns are gathered, the branch's output is scattered; backward
// gathers latents and the output's gradient, and scatters the gradients of all three. Without it the gradients of both
// latents and of the shared columns are summed.
TEST(LatentAttention, TradesLatentsOverTheTensorGroup) {
  using program::CollectiveKind;
  const std::int64_t latents = kTokens * (kQuery + kLatent), shared = kTokens * kRope, output = kTokens * kHidden;
  const Lowered whole = lowered({"cluster.gpus=2", "plan.tensor=2"});
  EXPECT_EQ(sent(whole, "forward", CollectiveKind::all_reduce), output);
  EXPECT_EQ(sent(whole, "backward.last", CollectiveKind::all_reduce), latents + shared);
  const Lowered parts = lowered({"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true"});
  EXPECT_EQ(sent(parts, "forward", CollectiveKind::all_gather), latents + shared);
  EXPECT_EQ(sent(parts, "forward", CollectiveKind::reduce_scatter), output);
  EXPECT_EQ(sent(parts, "backward.last", CollectiveKind::all_gather), latents + output);
  EXPECT_EQ(sent(parts, "backward.last", CollectiveKind::reduce_scatter), latents + shared);
}

// What the chain of kernels moves besides what one kernel does, an element of 16 bits that is turned: forward two
// copies that join, two products, a negation of half, a sum and a last copy; backward two products, the negation and
// its join, two sums of two, and for each slice zeros and a copy.
TEST(LatentAttention, AChainOfKernelsRotatesWhereTheyAreNotFused) {
  const Lowered fused = lowered({"cluster.gpus=1", "framework=nemo", "plan.fused_latent_rope=true"}),
                apart = lowered({"cluster.gpus=1", "framework=nemo"});
  EXPECT_FALSE(apart.scenario.plan.fused_latent_rope);
  const auto op = [](const Lowered& l, const std::string& name) {
    for (const program::Body& b : l.program.roles.front().bodies)
      for (const program::Op& o : b.ops)
        if (o.name == name) return o;
    return program::Op{};
  };
  const std::int64_t turned = kTokens * (kHeads + 1) * kRope;  // of all heads' queries, and the shared columns
  for (const bool backward : {false, true}) {
    const std::string name = backward ? "layer1.attention.heads.backward" : "layer1.attention.heads";
    EXPECT_FALSE(op(fused, name).passes.any());
    const program::Op chain = op(apart, name);
    EXPECT_EQ(chain.passes.read, turned * (backward ? 21 : 15));
    EXPECT_EQ(chain.passes.written, turned * (backward ? 21 : 13));
    EXPECT_EQ(chain.launches - op(fused, name).launches, 2 + 2 * (backward ? 12 : 7));
  }
}

}  // namespace
}  // namespace rehearse::latent_property
