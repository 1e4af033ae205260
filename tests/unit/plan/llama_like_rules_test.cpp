// What models like Gemma cannot be: each problem at its place, with the rule.
#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

// The only problem of a small llama with `model` and `rest`.
std::string only(const std::string& model, const std::string& rest = "") {
  const Texts found = problems(
      "rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100, max_seq_len: "
      "64, " +
      model + "}\n" + rest);
  EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
  return found.empty() ? std::string() : found.front();
}

bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// Of the only problem of a small model with experts.
std::string only_moe(const std::string& model, const std::string& rest = "") {
  const Texts found = problems(
      "rehearse: 1\nmodel: {family: moe, layers: 4, hidden: 64, heads: 4, vocab: 100, max_seq_len: 64, experts: 8, "
      "expert_ffn_hidden: 24, " +
      model + "}\n" + rest);
  EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
  return found.empty() ? std::string() : found.front();
}

TEST(LlamaLikeRules, LayersThatAttendDifferently) {
  EXPECT_TRUE(has(only("attention_sinks: true, attention: unfused"), "model.attention_sinks: scores that are kept"));
  EXPECT_TRUE(
      has(only("attention_chunk: 8, sliding_window: 4"), "model.attention_chunk: a layer has chunks or a window"));
  EXPECT_TRUE(has(only("nope_every: 4, position: learned"), "model.nope_every: has no meaning"));
  EXPECT_TRUE(
      has(only("attention_chunk: 8", "cluster: {topology: dgx-a100, gpus: 2}\nplan: {context: 2}\n"),
          "model.attention_chunk: context_kind: ring gives each rank as much of a causal mask, not of chunks of "
          "8 below seq_len = 64"));
  EXPECT_TRUE(has(only("attention_chunk: 8", "training: {documents: fixed, document_length: 16}\n"),
                  "model.attention_chunk: chunks of documents that are packed"));
  EXPECT_TRUE(
      has(only_moe("experts_per_token: 2, weigh_expert_inputs: true"),
          "model.weigh_expert_inputs: a token's score multiplies what goes into one expert, not into each of 2"));
  EXPECT_TRUE(has(only_moe("experts_per_token: 1, weigh_expert_inputs: true", "plan: {weigh_in_experts: true}\n"),
                  "plan.weigh_in_experts: weigh_expert_inputs"));
  EXPECT_TRUE(has(only_moe("experts_per_token: 2, experts_every: 8, ffn_hidden: 32"),
                  "model.experts_every: every 8th of 4 layers behind 0 dense ones leaves none with experts"));
  EXPECT_TRUE(has(only_moe("experts_per_token: 2, experts_every: 2"), "model.ffn_hidden: required key is missing"));
  EXPECT_TRUE(has(only_moe("experts_per_token: 2, bias: true, shared_experts: 1"),
                  "model.bias: products of shared experts have no biases"));
}

// Of the only problem of a small hybrid model with `model` and `rest`.
std::string only_hybrid(const std::string& model, const std::string& rest = "") {
  return only("layer_pattern: \"M-*M\", mamba_heads: 8, mamba_groups: 4" + (model.empty() ? "" : ", " + model), rest);
}

TEST(LlamaLikeRules, LayersOfOneBranch) {
  EXPECT_TRUE(has(only("layer_pattern: \"*-E-\""), "model.layer_pattern: 'E' of layer 2 is no kind of layer"));
  EXPECT_TRUE(has(only("layer_pattern: \"*-*\""), "model.layer_pattern: a pattern of 3 layers, and layers = 4"));
  EXPECT_TRUE(has(only("layer_pattern: \"M-*M\""), "model.mamba_heads: required key is missing"));
  EXPECT_TRUE(
      has(only("layer_pattern: \"M-*M\", mamba_heads: 12"), "model.mamba_groups: 12 heads do not divide into 8"));
  for (const char* pattern : {"*-", "M*", "?"})
    EXPECT_TRUE(has(only(std::string("mtp_depth: 1, mtp_pattern: \"") + pattern + "\""),
                    "model.mtp_pattern: modules are blocks as the layers are"));
  EXPECT_TRUE(has(only("mamba_state: 64"), "model.mamba_state: has no meaning without a mixer"));
  EXPECT_TRUE(has(only_hybrid("post_norms: true"), "model.post_norms: norms behind the branches"));
  EXPECT_TRUE(has(only_hybrid("parallel_block: one_norm"), "model.parallel_block: layers of layer_pattern have one"));
  EXPECT_TRUE(has(only_hybrid("mtp_depth: 1"), "model.mtp_pattern: required key is missing"));
  EXPECT_TRUE(has(only_hybrid("mtp_pattern: \"*\""), "model.mtp_pattern: has no meaning without multi-token"));
  EXPECT_TRUE(has(only_hybrid("mtp_depth: 1, mtp_pattern: \"*E\""), "model.mtp_pattern: 'E' is no kind of layer"));
  EXPECT_TRUE(has(only_hybrid("", "cluster: {topology: dgx-a100, gpus: 2}\nplan: {context: 2}\n"),
                  "plan.context: context = 2: a mixer's states pass from token to token"));
  EXPECT_TRUE(has(only_hybrid("", "training: {documents: fixed, document_length: 16}\n"),
                  "training.documents: a mixer's states and convolution pass"));
  EXPECT_TRUE(has(only_hybrid("", "training: {lora_rank: 4}\n"), "training.lora_rank: adapters of the layers"));
  EXPECT_TRUE(has(only("layer_pattern: \"M-*M\", mamba_heads: 8, mamba_groups: 2",
                       "cluster: {topology: dgx-a100, gpus: 4}\nplan: {tensor: 4}\n"),
                  "plan.tensor: mamba_groups = 2 is not divisible by tensor = 4"));
}

TEST(LlamaLikeRules, WhatDoesNotGoTogether) {
  for (const char* kind : {"flash1", "flash_triton", "cudnn"})
    EXPECT_TRUE(has(only(std::string("attention_softcap: 50, attention: ") + kind),
                    std::string("model.attention_softcap: attention: ") + kind + " has no capped scores"));
  EXPECT_TRUE(has(only("qk_norm: true, norm: layernorm"), "model.qk_norm: is of RMSNorms"));
  EXPECT_TRUE(has(only("zero_centered_norms: true, norm: layernorm"), "model.zero_centered_norms: is of RMSNorms"));
  EXPECT_TRUE(has(only("post_norms: true, bias: true"), "model.post_norms: a branch's bias is added behind it"));
  EXPECT_TRUE(has(only("post_norms: true, parallel_block: one_norm"), "model.post_norms: branches side by side"));
  EXPECT_TRUE(has(only("rope_base_local: 100"), "model.rope_base_local: is of layers with a window"));
  EXPECT_TRUE(has(only("qk_norm: true, kv_lora_rank: 8, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8"),
                  "model.qk_norm: latent attention has"));
  EXPECT_EQ(problems("rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100, "
                     "max_seq_len: 64, zero_centered_norms: true}\ntraining: {precision: fp8}\n",
                     {}, Purpose::perform),
            Texts());
  EXPECT_TRUE(
      has(only("rope_scaling: linear, position: learned"), "model.rope_scaling: has no meaning without rotated"));
  EXPECT_TRUE(has(only("rope_factor: 4"), "model.rope_factor: has no meaning without rope_scaling"));
  for (const char* key : {"rope_low_freq_factor: 2", "rope_high_freq_factor: 8", "rope_trained_len: 4096"})
    EXPECT_TRUE(has(only(std::string("rope_scaling: linear, ") + key), "is of rope_scaling: llama3")) << key;
  EXPECT_TRUE(has(only("rope_scaling: yarn, rope_high_freq_factor: 8"),
                  "model.rope_high_freq_factor: is of rope_scaling: llama3"));
  EXPECT_EQ(problems("rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100, "
                     "max_seq_len: 64, rope_scaling: yarn, rope_trained_len: 32}\n"),
            Texts());
  EXPECT_TRUE(has(only("rope_scaling: llama3, rope_high_freq_factor: 1"),
                  "model.rope_high_freq_factor: 1 is not above rope_low_freq_factor = 1"));
  EXPECT_EQ(problems("rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100, "
                     "max_seq_len: 64, rope_base: 50000, rope_scaling: yarn, rope_trained_len: 32, kv_lora_rank: 8, "
                     "qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8}\n",
                     {}, Purpose::perform),
            Texts());
  for (const char* training : {"", "training: {precision: fp8, fp8_recipe: mxfp8}\n"})
    EXPECT_TRUE(has(only("rope_base: 10000", std::string("plan: {fused_experts: true}\n") + training),
                    "plan.fused_experts: the kernel is Transformer Engine's, of routed experts in mxfp8"));
  EXPECT_TRUE(has(only("rope_base: 10000", "plan: {fused_latent_rope: false}\n"),
                  "plan.fused_latent_rope: this model has no latent attention"));
  EXPECT_TRUE(has(only("attention_softcap: -1"), "model.attention_softcap"));
  EXPECT_TRUE(has(only("rope_base: 0"), "model.rope_base"));
}

TEST(SharedKeyHead, WhatItDoesNotGoWith) {
  const auto of = [](const std::string& rest, int gpus = 2) {
    return only("kv_heads: 1", "cluster: {gpus: " + std::to_string(gpus) + "}\n" + rest);
  };
  const std::string plan = "plan: {tensor: 2}\n";
  EXPECT_TRUE(has(of(plan + "framework: megatron-core\n"),
                  "plan.tensor: kv_heads = 1 with tensor = 2: megatron-core does not replicate key and value"));
  EXPECT_TRUE(
      has(of(plan + "training: {lora_rank: 4}\n"), "training.lora_rank: kv_heads = 1 with tensor = 2: adapters"));
  EXPECT_TRUE(has(of(plan + "training: {precision: fp8}\n"), "training.precision: kv_heads = 1 with tensor = 2: key"));
  EXPECT_TRUE(has(of(plan + "training: {optimizer: adafactor}\n"),
                  "training.optimizer: kv_heads = 1 with tensor = 2: it looks at whole tensors"));
  EXPECT_TRUE(has(only("kv_heads: 2", "cluster: {gpus: 4}\nplan: {tensor: 4}\nframework: megatron-core\n"),
                  "plan.tensor: kv_heads = 2 with tensor = 4: megatron-core does not replicate key and value"));
  EXPECT_TRUE(has(of("plan: {tensor: 3}\n", 3), "plan.tensor: heads = 4 is not divisible by tensor = 3"));
  EXPECT_TRUE(has(of("plan: {tensor: 2, context: 2, context_kind: all_to_all}\n", 4),
                  "2 heads and 1 key-value heads a tensor rank do not divide by context = 2"));
}

TEST(LlamaLikeRules, TheKeysAreOfLlamas) {
  const Texts found = problems(
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 100, max_seq_len: 64, post_norms: "
      "true}\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(has(found.front(), "post_norms")) << found.front();
}

}  // namespace
}  // namespace rehearse::plan
