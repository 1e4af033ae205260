// Low-rank adaptation of experts and of latent attention: the losses of the plain model, whose weights are merged with
// their adapters (plain_experts.cpp); what is frozen stays as it was drawn; and plans against one rank.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "execute/performer.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plan_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

// No width equals another; a layer of experts beside shared ones, latents of queries and of keys and values.
const char* const kAdaptedExperts = R"(
rehearse: 1
model: {family: moe, layers: 2, hidden: 24, heads: 6, kv_lora_rank: 10, q_lora_rank: 14, qk_nope_head_dim: 6,
        qk_rope_head_dim: 4, v_head_dim: 7, vocab: 61, max_seq_len: 18, attention: flash, tied_embeddings: true,
        experts: 6, experts_per_token: 2, expert_ffn_hidden: 20, shared_experts: 1, shared_ffn_hidden: 18,
        aux_loss: 0.3, router: sigmoid}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 8,
           lora_rank: 4, lora_alpha: 3}
)";

// As Llama 4: scores multiply what goes into a token's one expert, so that norms' outputs are read in backward whatever
// is adapted; between layers with experts are gated ones.
const char* const kAdaptedLlama4 = R"(
rehearse: 1
model: {family: moe, layers: 4, hidden: 24, heads: 6, kv_heads: 2, head_dim: 8, vocab: 61, max_seq_len: 18,
        attention: flash, ffn_hidden: 28, experts_every: 2, experts: 6, experts_per_token: 1, expert_ffn_hidden: 20,
        shared_experts: 1, router: sigmoid, weigh_expert_inputs: true, attention_chunk: 6, nope_every: 4,
        aux_loss: 0.3}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 3,
           lora_rank: 8, lora_alpha: 24}
)";

void expect_plain_losses(const char* text, const PlainCase& c) {
  plan::Scenario scenario = scenario_from(text, c.assignments);
  scenario.purpose = plan::Purpose::perform;
  expect_plain_gpt_losses(scenario, learnable_tokens());
}

class AdaptedExpertsAgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(AdaptedExpertsAgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kAdaptedExperts, GetParam());
}

const std::string kOfExperts = "training.lora_targets=[mlp]", kOfAttention = "training.lora_targets=[attention]",
                  kOfFirst = "training.lora_targets=[mlp_fc1]", kOfLast = "training.lora_targets=[mlp_fc2]",
                  kMuch = "training.lora_alpha=24", kRows = "plan.sequence_parallel=true",
                  kRoom = "model.buffer_factor=3", kWeigh = "plan.weigh_in_experts=true",
                  kAgain = "plan.recompute_expert_activation=true";
INSTANTIATE_TEST_SUITE_P(
    Plans, AdaptedExpertsAgainstPlain,
    testing::Values(
        PlainCase{"OneRank", {}}, PlainCase{"ExpertsAlone", {kOfExperts}}, PlainCase{"AttentionAlone", {kOfAttention}},
        PlainCase{"FirstAlone", {kOfFirst, kMuch}}, PlainCase{"LastAlone", {kOfLast, kMuch}},
        PlainCase{"LastAloneRecomputed", {kOfLast, kMuch, "plan.recompute=full"}},
        PlainCase{"QueriesFromTheToken", {"model.q_lora_rank=0"}}, PlainCase{"Again", {"plan.recompute_latent=true"}},
        PlainCase{"Recomputed", {"plan.recompute=full"}}, PlainCase{"ActivationAgain", {kAgain}},
        PlainCase{"ActivationAgainFirstAlone", {kAgain, kOfFirst, kMuch}}, PlainCase{"Weighed", {kWeigh, kAgain}},
        PlainCase{"WeighedRecomputed", {kWeigh, "plan.recompute=full"}},
        PlainCase{"WeighedFirstAlone", split(2, {"plan.expert=2", kRoom, kWeigh, kOfFirst, kMuch})},
        PlainCase{"WeighedLastAlone", split(2, {"plan.expert=2", kRoom, kWeigh, kOfLast, kMuch})},
        PlainCase{"WeighedTensorSequence", split(4, {"plan.expert=2", "plan.tensor=2", kRows, kRoom, kWeigh})},
        PlainCase{"Expert2Zero1", split(2, {"plan.expert=2", "plan.zero=1", kRoom})},
        PlainCase{"Expert2Data2Zero3", split(4, {"plan.expert=2", "plan.zero=3", kRoom})},
        PlainCase{"Expert2Fsdp2", split(4, {"plan.expert=2", "plan.zero=3", kRoom, "framework=torch-fsdp2"})},
        PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
        PlainCase{"TensorFromTheToken", split(2, {"plan.tensor=2", "model.q_lora_rank=0"})},
        PlainCase{"TensorSequence", split(2, {"plan.tensor=2", kRows, kRoom})},
        PlainCase{"TensorSequenceLastAlone", split(2, {"plan.tensor=2", kRows, kRoom, kOfLast, kMuch})},
        PlainCase{"Expert2Tensor2", split(4, {"plan.expert=2", "plan.tensor=2", kRoom})},
        PlainCase{"Expert2Tensor2Sequence", split(4, {"plan.expert=2", "plan.tensor=2", kRows, kRoom})},
        PlainCase{"WholeExperts",
                  split(4, {"plan.expert=2", "plan.tensor=2", kRows, kRoom, "plan.expert_tensor=1", "plan.zero=2"})},
        PlainCase{"Pipeline2Expert2", split(4, {"plan.expert=2", "plan.pipeline=2", kRoom})},
        PlainCase{"OverlappedShared",
                  split(2, {"plan.expert=2", kRoom, "plan.overlap_shared_experts=true", kOfExperts})},
        PlainCase{"MegatronCore", split(8, {"framework=megatron-core", "plan.expert=2", "plan.pipeline=2",
                                            "plan.tensor=2", kRows, "plan.zero=1", kRoom})}),
    plain_case_name);

class AdaptedLlama4AgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(AdaptedLlama4AgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kAdaptedLlama4, GetParam());
}

// Without chunks: the seed keeps scores apart, where equal ones send a token elsewhere than the plain model's.
const std::string kApart = "training.seed=4";
INSTANTIATE_TEST_SUITE_P(
    Plans, AdaptedLlama4AgainstPlain,
    testing::Values(PlainCase{"OneRank", {}}, PlainCase{"AttentionAlone", {kOfAttention}},
                    PlainCase{"ExpertsAlone", {kOfExperts}}, PlainCase{"LastAlone", {kOfLast}},
                    PlainCase{"AttentionAloneRecomputed", {kOfAttention, "plan.recompute=full"}},
                    PlainCase{"LastAloneRecomputed", {kOfLast, "plan.recompute=full"}},
                    PlainCase{"AttentionAloneExpert2", split(2, {kOfAttention, "plan.expert=2", kRoom})},
                    PlainCase{"LastAloneExpert2", split(2, {kOfLast, "plan.expert=2", kRoom})},
                    PlainCase{"LastAloneTensorSequence", split(2, {kOfLast, "plan.tensor=2", kRows, kRoom})},
                    PlainCase{"AttentionAloneRing",
                              split(2, {kOfAttention, "plan.context=2", "model.attention_chunk=0", kRoom, kApart})},
                    PlainCase{"LastAloneRing",
                              split(2, {kOfLast, "plan.context=2", "model.attention_chunk=0", kRoom, kApart})},
                    PlainCase{"AttentionAloneAllToAll",
                              split(2, {kOfAttention, "plan.context=2", "plan.context_kind=all_to_all", kRoom})}),
    plain_case_name);

// A's of experts and latents begin as torch.nn.Linear's weights, B's as zeros; everything else is as it was drawn.
TEST(AdaptedExperts, LeaveWhatIsFrozenAsItWasDrawn) {
  const TokenFile tokens = learnable_tokens();
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{}, split(4, {"plan.expert=2", "plan.tensor=2", kRows, kRoom, "plan.zero=3"})}) {
    plan::Scenario scenario = scenario_from(kAdaptedExperts, plan);
    scenario.purpose = plan::Purpose::perform;
    const execute::Parameters after = performed(scenario, 3, tokens.path()).parameters;
    const auto drawn = initial_values(scenario);
    std::size_t adapters = 0;
    for (const auto& [name, values] : after) {
      std::size_t changed = 0;
      for (std::size_t i = 0; i < values.size(); ++i) changed += values[i] != drawn(name, static_cast<std::int64_t>(i));
      const bool of_adapter = name.find(".lora_") != std::string::npos;
      adapters += of_adapter;
      EXPECT_EQ(changed > 0, of_adapter) << name;
    }
    EXPECT_EQ(adapters, 2U * 2 * (5 + 2 + 2)) << "of attention's five, of experts' two, of shared experts' two";
  }
}

// More plans, against one rank.
std::vector<Case> adapted_cases() {
  const std::string text =
      "rehearse: 1\n"
      "model: {family: moe, layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: 16, "
      "experts: 8, experts_per_token: 2, expert_ffn_hidden: 24, dense_layers: 1, capacity_factor: 4}\n" +
      kTraining;
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const Assignments& plan, Assignments model = {}) {
    model.insert(model.end(), {"training.lora_rank=4", "training.lora_alpha=8", "training.lr=1e-2"});
    cases.push_back({name, text, plan, model});
  };
  add("expert2_zero2", grid(4, 1, 1, 2, {"plan.expert=2"}));
  add("expert2_hybrid", grid(4, 1, 1, 3, {"plan.expert=2", "plan.zero_group=2"}));
  add("expert4_context2", grid(4, 1, 1, 1, {"plan.expert=4", "plan.context=2"}));
  add("gathered", grid(4, 1, 1, 1, {"plan.expert=2", "plan.expert_dispatch=all_gather"}),
      {"model.capacity_factor=0", "model.buffer_factor=2"});
  add("interleaved",
      grid(4, 1, 2, 1, {"plan.expert=2", "plan.schedule=interleaved", "plan.chunks=2", "plan.recompute=full"}));
  add("tensor2_zero1_clip", grid(8, 2, 1, 1, {"plan.expert=2", kRows}),
      {"training.clip=0.01", "training.global_batch=16"});
  add("offloaded", grid(4, 1, 1, 1, {"plan.expert=2", "plan.offload_optimizer=true"}));
  add("tensor2_experts_alone", grid(4, 2, 1, 1, {"plan.expert=2"}), {kOfExperts});
  // As Llama 4.
  const Assignments weighs = {"model.experts_per_token=1", "model.experts_every=2", "model.dense_layers=0",
                              "model.shared_experts=1",    "model.router=sigmoid",  "model.weigh_expert_inputs=true",
                              "model.capacity_factor=0",   "model.buffer_factor=2", "model.nope_every=4"};
  for (const auto& [which, targets] : {std::pair{"attention", kOfAttention}, std::pair{"last", kOfLast}}) {
    Assignments model = weighs;
    model.push_back(targets);
    const std::string name = std::string("weighs_inputs_") + which;
    add(name, grid(2, 1, 1, 1, {"plan.expert=2"}), model);
    add(name + "_zero3", grid(4, 1, 1, 3, {"plan.expert=2"}), model);
    add(name + "_tensor2_recompute", grid(4, 2, 1, 1, {"plan.expert=2", kRows, "plan.recompute=full"}), model);
    add(name + "_pipeline2", grid(2, 1, 2, 0), model);
  }
  return cases;
}
class AdaptedExpertsPlans : public testing::TestWithParam<Case> {};
TEST_P(AdaptedExpertsPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam(), 1);
}
INSTANTIATE_TEST_SUITE_P(Plans, AdaptedExpertsPlans, testing::ValuesIn(adapted_cases()), name_of_case);

TEST(AdaptedExperts, RunTwiceAreTheSameInEveryBit) {
  const TokenFile tokens = learnable_tokens();
  plan::Scenario scenario =
      scenario_from(kAdaptedExperts, split(4, {"plan.expert=2", "plan.tensor=2", kRows, kRoom, "plan.zero=3"}));
  scenario.purpose = plan::Purpose::perform;
  const execute::Outcome first = performed(scenario, 4, tokens.path()), second = performed(scenario, 4, tokens.path());
  EXPECT_EQ(first.result.loss, second.result.loss);
  EXPECT_EQ(first.parameters, second.parameters);
}

}  // namespace
}  // namespace rehearse::numerics
