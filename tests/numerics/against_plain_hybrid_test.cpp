// Plans of hybrid models, Mamba-2 mixers beside attention and feed-forward layers, performed, against the plain model
// (plain_hybrid.h): twenty steps have its losses whatever the split and however long the chunks, and the gradients it
// works out are those of finite differences. No width of a mixer equals another, and sequences end within a chunk.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/numerics/plain_hybrid.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

const char* const kHybrid = R"(
rehearse: 1
model: {family: llama, layers: 6, layer_pattern: "M-M*M-", hidden: 24, heads: 4, kv_heads: 2, head_dim: 10,
        ffn_hidden: 28, vocab: 61, max_seq_len: 18, activation: squared_relu, position: none, attention: flash,
        mamba_heads: 8, mamba_head_dim: 5, mamba_groups: 4, mamba_state: 6, mamba_chunk: 7}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 4KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 3e-3, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

HybridShape hybrid_shape(const model::Model& m) {
  HybridShape shape{m.layer_pattern, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn_hidden, m.vocab};
  shape.mamba_heads = m.mamba_heads, shape.mamba_head_dim = m.mamba_head_dim, shape.groups = m.mamba_groups;
  shape.state = m.mamba_state, shape.conv = m.mamba_conv, shape.tied = m.tied_embeddings;
  return shape;
}

class AgainstPlainHybrid : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainHybrid, TwentyStepsHaveThePlainModelsLosses) {
  const plan::Scenario scenario = scenario_from(kHybrid, GetParam().assignments);
  expect_losses_of<PlainHybrid>(hybrid_shape(scenario.model), scenario, sequence_of);
}

const std::string kSequence = "plan.sequence_parallel=true";

INSTANTIATE_TEST_SUITE_P(
    Parts, AgainstPlainHybrid,
    testing::Values(PlainCase{"OneRank", {}}, PlainCase{"ChunksOfOne", {"model.mamba_chunk=1"}},
                    PlainCase{"OneChunk", {"model.mamba_chunk=128"}}, PlainCase{"EvenChunks", {"model.mamba_chunk=4"}},
                    PlainCase{"LongFilter", {"model.mamba_conv=9"}}, PlainCase{"FilterOfOne", {"model.mamba_conv=1"}},
                    PlainCase{"OneGroup", {"model.mamba_groups=1"}},
                    PlainCase{"MixersAlone", {"model.layers=3", "model.layer_pattern=MMM"}},
                    PlainCase{"Tied", {"model.tied_embeddings=true"}}, PlainCase{"OneSequence", {"plan.micro_batch=1"}},
                    PlainCase{"FullRecompute", {"plan.recompute=full"}},
                    PlainCase{"OpByOpRecompute", {"plan.recompute=ops"}},
                    PlainCase{"NormsAgain", {"plan.recompute_norms=true"}},
                    PlainCase{"Torch", {"framework=torch-ddp", "model.dropout=0"}}),
    plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Plans, AgainstPlainHybrid,
    testing::Values(
        PlainCase{"Data", split(2, {})}, PlainCase{"Zero1", split(4, {"plan.zero=1"})},
        PlainCase{"Zero2", split(2, {"plan.zero=2"})}, PlainCase{"Zero3", split(4, {"plan.zero=3"})},
        PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
        PlainCase{"Tensor4", split(4, {"plan.tensor=4", "model.kv_heads=4"})},
        PlainCase{"TensorSequence", split(2, {"plan.tensor=2", kSequence})},
        PlainCase{"TensorInTurns", split(2, {"plan.tensor=2", kSequence, "plan.async_tensor_parallel=true"})},
        PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})}, PlainCase{"Pipeline3", split(3, {"plan.pipeline=3"})},
        PlainCase{"Interleaved", split(2, {"plan.pipeline=2", "plan.chunks=3", "plan.schedule=interleaved"})},
        PlainCase{"ZeroBubble", split(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
        PlainCase{"MegatronCore", split(8, {"framework=megatron-core", "plan.pipeline=2", "plan.tensor=2", kSequence,
                                            "plan.zero=1", "plan.recompute=full"})},
        PlainCase{"Fsdp", split(2, {"framework=torch-fsdp2", "plan.zero=3"})}),
    plain_case_name);

TEST(PlainHybrid, GradientsAreDifferencesOfTheLoss) {
  HybridShape shape{"M-*M", 6, 4, 2, 3, 10, 7};
  shape.mamba_heads = 4, shape.mamba_head_dim = 3, shape.groups = 2, shape.state = 5, shape.conv = 3;
  for (const bool tied : {false, true}) {
    shape.tied = tied;
    PlainHybrid model(shape, waves);
    expect_gradients_of_differences(
        model, std::vector<Sequence>{{{1, 4, 2, 2, 6}, {4, 2, 2, 6, 0}}, {{0, 3, 5, 1, 1}, {3, 5, 1, 1, 2}}}, 2e-6);
  }
}

// The same bits from run to run, and from thread count to thread count of products apart.
TEST(HybridPlans, RunsHaveTheSameBits) {
  const TokenFile tokens = alternating_tokens();
  for (const auto& plan : {split(1, {}), split(4, {"plan.tensor=2", kSequence, "plan.zero=2"})}) {
    const plan::Scenario scenario = scenario_from(kHybrid, plan);
    EXPECT_EQ(performed(scenario, 5, tokens.path()).result.loss, performed(scenario, 5, tokens.path()).result.loss);
  }
}

// Experts among mixers have no plain model: whatever the split, twenty steps have one rank's losses.
TEST(HybridPlans, ExpertsAmongMixersHaveOneRanksLosses) {
  const char* const text = R"(
rehearse: 1
model: {family: moe, layers: 5, layer_pattern: "ME*ME", hidden: 24, heads: 4, kv_heads: 2, head_dim: 10, vocab: 61,
        max_seq_len: 18, position: none, attention: flash, experts: 6, experts_per_token: 2, expert_ffn_hidden: 20,
        shared_experts: 1, capacity_factor: 3, mamba_heads: 8, mamba_head_dim: 5, mamba_groups: 4, mamba_state: 6,
        mamba_chunk: 7}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 4KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 3e-3, weight_decay: 0.2, clip: 0.5, seed: 7}
)";
  const TokenFile tokens = alternating_tokens();
  const std::vector<double> one = performed(scenario_from(text), kPlainSteps, tokens.path()).result.loss;
  EXPECT_LT(one.back(), 0.9 * one.front());
  for (const auto& plan : {split(2, {"plan.zero=1"}), split(2, {"plan.tensor=2", kSequence}),
                           split(2, {"plan.expert=2", "plan.zero=1"}), split(2, {"plan.pipeline=2"})}) {
    const std::vector<double> losses = performed(scenario_from(text, plan), kPlainSteps, tokens.path()).result.loss;
    ASSERT_EQ(losses.size(), one.size());
    for (std::size_t s = 0; s < one.size(); ++s)
      EXPECT_NEAR(losses[s], one[s], 1e-4 * one[s]) << testing::PrintToString(plan) << ", step " << s;
  }
}

// As Nemotron 3 Super: experts of two matrices in a latent, and modules of multi-token prediction of two layers.
TEST(HybridPlans, ModulesOfSeveralLayersHaveOneRanksLosses) {
  const char* const text = R"(
rehearse: 1
model: {family: moe, layers: 4, layer_pattern: "ME*E", hidden: 24, heads: 4, kv_heads: 2, head_dim: 10, vocab: 61,
        max_seq_len: 18, position: none, attention: flash, activation: squared_relu, experts: 6, experts_per_token: 2,
        expert_ffn_hidden: 20, expert_latent: 12, shared_experts: 1, capacity_factor: 3, mtp_depth: 2,
        mtp_pattern: "*E", mamba_heads: 8, mamba_head_dim: 5, mamba_groups: 4, mamba_state: 6, mamba_chunk: 7}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 4KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 3e-3, weight_decay: 0.2, clip: 0.5, seed: 7}
)";
  const TokenFile tokens = alternating_tokens();
  const std::vector<double> one = performed(scenario_from(text), kPlainSteps, tokens.path()).result.loss;
  for (const auto& plan :
       {split(2, {"plan.zero=1"}), split(2, {"plan.tensor=2", kSequence}), split(2, {"plan.recompute=full"}),
        split(2, {"plan.expert=2", "plan.zero=1"}), split(2, {"plan.pipeline=2"})}) {
    SCOPED_TRACE(testing::PrintToString(plan));
    const std::vector<double> losses = performed(scenario_from(text, plan), kPlainSteps, tokens.path()).result.loss;
    ASSERT_EQ(losses.size(), one.size());
    EXPECT_LT(one.back(), 0.95 * one.front());
    for (std::size_t s = 0; s < one.size(); ++s) EXPECT_NEAR(losses[s], one[s], 1e-4 * one[s]) << "step " << s;
  }
}

}  // namespace
}  // namespace rehearse::numerics
