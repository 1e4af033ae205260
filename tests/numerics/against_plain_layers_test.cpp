// Plans of models whose layers attend differently, performed, against the plain GPT (plain_gpt.h, plain_experts.cpp):
// as gpt-oss, windows in every second layer, sinks, biases of attention, router and experts, and its gated activation;
// as Llama 4, experts in every second layer with a gated layer between, scores that multiply what goes into a token's
// one expert, chunks, and layers that rotate nothing; as Nemotron 3, experts of two matrices in a latent.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

// Seeds keep scores apart: where two are equal but for rounding, a token goes elsewhere than the plain model's.
const char* const kOss = R"(
rehearse: 1
model: {family: moe, layers: 2, hidden: 24, heads: 6, kv_heads: 2, head_dim: 8, vocab: 61, max_seq_len: 18,
        attention: flash, bias: true, attention_sinks: true, activation: swiglu_oai, sliding_window: 5,
        full_attention_every: 2, experts: 6, experts_per_token: 2, expert_ffn_hidden: 20, aux_loss: 0.3}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 3}
)";

const char* const kLlama4 = R"(
rehearse: 1
model: {family: moe, layers: 4, hidden: 24, heads: 6, kv_heads: 2, head_dim: 8, vocab: 61, max_seq_len: 18,
        attention: flash, ffn_hidden: 28, experts_every: 2, experts: 6, experts_per_token: 1, expert_ffn_hidden: 20,
        shared_experts: 1, router: sigmoid, weigh_expert_inputs: true, attention_chunk: 6, nope_every: 4,
        aux_loss: 0.3}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 3}
)";

const char* const kLatent = R"(
rehearse: 1
model: {family: moe, layers: 2, hidden: 24, heads: 6, kv_heads: 2, head_dim: 8, vocab: 61, max_seq_len: 18,
        attention: flash, activation: squared_relu, experts: 6, experts_per_token: 2, expert_ffn_hidden: 20,
        expert_latent: 10, shared_experts: 1, shared_ffn_hidden: 28, router: sigmoid, aux_loss: 0.3}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 3}
)";

void expect_plain_losses(const char* text, const PlainCase& c) {
  plan::Scenario scenario = scenario_from(text, c.assignments);
  scenario.purpose = plan::Purpose::perform;  // how many rows come to experts is known after routing alone
  expect_plain_gpt_losses(scenario, alternating_tokens());
}

class OssAgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(OssAgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kOss, GetParam());
}

class Llama4AgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(Llama4AgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kLlama4, GetParam());
}

class Nemotron3AgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(Nemotron3AgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kLatent, GetParam());
}

const std::string kSequence = "plan.sequence_parallel=true", kCapacity = "model.capacity_factor=1",
                  kInExperts = "plan.weigh_in_experts=true";

std::vector<PlainCase> both() {
  return {{"OneRank", {}},
          {"Capacity", {kCapacity}},
          {"FullRecompute", {"plan.recompute=full"}},
          {"Torch", {"framework=torch-ddp", "model.dropout=0"}},
          {"Data", split(2, {})},
          {"Zero1", split(4, {"plan.zero=1"})},
          {"Zero2", split(2, {"plan.zero=2"})},
          {"Zero3", split(2, {"plan.zero=3"})},
          {"Tensor", split(2, {"plan.tensor=2"})},
          {"TensorSequence", split(2, {"plan.tensor=2", kSequence, kCapacity})},
          {"AllToAll", split(2, {"plan.context=2", "plan.context_kind=all_to_all", kCapacity})},
          {"Pipeline", split(2, {"plan.pipeline=2"})},
          {"ZeroBubble", split(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
          {"Expert2", split(2, {"plan.expert=2", kCapacity})},
          {"Expert2Data2Zero1", split(4, {"plan.expert=2", "plan.zero=1", kCapacity})},
          {"Expert2Zero3", split(4, {"plan.expert=2", "plan.zero=3", kCapacity})},
          {"Expert2Tensor2", split(4, {"plan.expert=2", "plan.tensor=2", kCapacity})},
          {"Expert2Tensor2Sequence", split(4, {"plan.expert=2", "plan.tensor=2", kSequence, kCapacity})},
          {"Expert2Whole", split(2, {"plan.expert=2", "plan.tensor=2", kSequence, "plan.expert_tensor=1", kCapacity})},
          {"Expert2Dropless", split(4, {"plan.expert=2", "model.buffer_factor=2"})},
          {"Expert2AllGather", split(4, {"plan.expert=2", "plan.expert_dispatch=all_gather", "model.buffer_factor=2"})},
          {"MegatronCore", split(8, {"framework=megatron-core", "plan.expert=2", "plan.pipeline=2", "plan.tensor=2",
                                     kSequence, "plan.zero=1", "plan.recompute=full", kCapacity})}};
}

std::vector<PlainCase> oss_cases() {
  std::vector<PlainCase> cases = both();
  const std::vector<PlainCase> more = {
      {"NoSinks", {"model.attention_sinks=false"}},
      {"NoBiases", {"model.bias=false"}},
      {"Silu", {"model.activation=swiglu"}},
      {"WeighsInExperts", {kInExperts}},
      {"WeighsInExpertsData", split(4, {kInExperts, "plan.expert=2", kCapacity})},
      {"WeighsInExpertsTensorSequence", split(4, {kInExperts, "plan.expert=2", "plan.tensor=2", kSequence, kCapacity})},
      {"WeighsInExpertsTensor", split(2, {kInExperts, "plan.tensor=2"})},
      {"Ring", split(2, {"plan.context=2", "model.sliding_window=0", "model.full_attention_every=0", kCapacity})},
      {"GatheredKeys", split(2, {"plan.context=2", "plan.context_kind=all_gather", "model.sliding_window=0",
                                 "model.full_attention_every=0", kCapacity})}};
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

std::vector<PlainCase> llama4_cases() {
  std::vector<PlainCase> cases = both();
  const std::vector<PlainCase> more = {
      {"Softmax", {"model.router=softmax"}},
      {"NoChunks", {"model.attention_chunk=0"}},
      {"AllRotate", {"model.nope_every=0"}},
      {"UnfusedAttention", {"model.attention=unfused"}},
      {"SelectiveRecompute", {"model.attention=unfused", "plan.recompute=selective"}},
      {"EveryLayer", {"model.experts_every=1"}},
      {"Interleaved", split(2, {"plan.pipeline=2", "plan.chunks=2", "plan.schedule=interleaved"})}};
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

std::vector<PlainCase> latent_cases() {
  std::vector<PlainCase> cases = both();
  const std::vector<PlainCase> more = {
      {"WholeTokens", {"model.expert_latent=0"}},
      {"Gelu", {"model.activation=gelu"}},
      {"NoShared", {"model.shared_experts=0"}},
      {"Gated", {"model.activation=swiglu"}},
      {"Biases", {"model.bias=true", "model.shared_experts=0"}},
      {"WeighsInExperts", {kInExperts}},
      {"WeighsInExpertsData", split(4, {kInExperts, "plan.expert=2", kCapacity})},
      {"WeighsInExpertsTensorSequence", split(4, {kInExperts, "plan.expert=2", "plan.tensor=2", kSequence, kCapacity})},
      {"WeighsInExpertsTensor", split(2, {kInExperts, "plan.tensor=2"})},
      {"WeighsInExpertsWholeTokens", {kInExperts, "model.expert_latent=0", "model.activation=gelu"}},
      {"OpByOpRecompute", {"plan.recompute=ops"}},
      {"OpByOpRecomputeExpert2", split(2, {"plan.recompute=ops", "plan.expert=2", kCapacity})},
      {"OpByOpRecomputeInExperts", split(2, {"plan.recompute=ops", kInExperts, "plan.expert=2", kCapacity})},
      {"RecomputedActivations", {"plan.recompute_expert_activation=true"}},
      {"Overlapped", split(2, {"plan.overlap_shared_experts=true", "plan.expert=2", kCapacity})},
      {"GathersAndSums",
       split(4, {"plan.expert=2", "plan.tensor=2", "plan.expert_dispatch=all_gather", "model.buffer_factor=2"})},
      {"DualPipe", split(4, {"plan.pipeline=2", "plan.schedule=dualpipe_v", "plan.chunks=2", "model.layers=4",
                             "plan.overlap_expert_exchange=true", "plan.expert=2", kCapacity})}};
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Plans, Nemotron3AgainstPlain, testing::ValuesIn(latent_cases()), plain_case_name);
INSTANTIATE_TEST_SUITE_P(Plans, OssAgainstPlain, testing::ValuesIn(oss_cases()), plain_case_name);
INSTANTIATE_TEST_SUITE_P(Plans, Llama4AgainstPlain, testing::ValuesIn(llama4_cases()), plain_case_name);

}  // namespace
}  // namespace rehearse::numerics
