// Gated feed-forward layers and rotated positions: Llama and what followed it, with experts and latent attention.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

// Of Qwen2 and later: a window that most files name and do not use. Where they do, `layer_types` says which layers have
// it, or else max_window_layers, from which on they do (transformers' Qwen2Config).
void qwen_window(Config& c) {
  c.no_matter({"use_mrope"}, kValues);
  if (!c.flag("use_sliding_window", false)) {
    c.no_matter({"sliding_window", "max_window_layers"}, "use_sliding_window is false");
    c.no_matter({"layer_types"}, "all layers are alike");
    if (c.lists("layer_types", "sliding_attention"))
      c.refuse("layer_types", "layers with a window, but use_sliding_window is false");
    return;
  }
  const bool listed = c.elements("layer_types") > 0;
  const std::int64_t first = listed ? 0 : c.integer("max_window_layers", 28);
  if (listed) {
    c.no_matter({"max_window_layers"}, "layer_types says it");
    if (!c.lists("layer_types", "sliding_attention")) return c.no_matter({"sliding_window"}, "no layer has it");
    windowed_layers(c);
  } else if (first >= c.shape_read("num_hidden_layers")) {
    return c.no_matter({"sliding_window"}, "max_window_layers are all layers, and none has a window");
  } else if (first > 0) {
    return c.refuse("max_window_layers",
                    fmt::format("the first {} layers have no window: only every so many-th without one is available "
                                "(model.full_attention_every)",
                                first));
  }
  window(c, 4096);
}

void llama_biases(Config& c) {
  const bool attention = c.flag("attention_bias", false), mlp = c.flag("mlp_bias", false);
  if (attention != mlp)
    c.refuse(attention ? "attention_bias" : "mlp_bias",
             "biases of attention's products and none of the feed-forward layer's, or the other way round: there is "
             "model.bias for both, and model.qkv_bias for queries, keys and values");
  if (attention && mlp) c.put("bias", "true", "attention_bias");
}

void qwen3_attention(Config& c) {
  c.shape_or("num_key_value_heads", "kv_heads", c.kind() == "qwen3_moe" ? 4 : 32);
  c.shape_or("head_dim", "head_dim", 128);
  c.put("qk_norm", "true", "model_type");
  silu(c);
  c.require("attention_bias", false, false, "biases of attention's products alone are not available yet");
  tied(c, false);
  qwen_window(c);
  c.for_scenario("attention_dropout", kDropout);
}

// Latent attention and experts of DeepSeek-V2 and V3.
void deepseek(Config& c, bool third) {
  widths(c, "moe", third ? 4096 : 2048);
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("q_lora_rank", "q_lora_rank", "null: queries come from the token itself");
  c.shape("kv_lora_rank", "kv_lora_rank");
  c.shape("qk_nope_head_dim", "qk_nope_head_dim");
  c.shape("qk_rope_head_dim", "qk_rope_head_dim");
  c.shape("v_head_dim", "v_head_dim");
  c.shape("n_routed_experts", "experts");
  c.shape("num_experts_per_tok", "experts_per_token");
  c.shape("moe_intermediate_size", "expert_ffn_hidden");
  c.count_or("n_shared_experts", "shared_experts", third ? 1 : 2);
  c.count_or("first_k_dense_replace", "dense_layers", third ? 3 : 0);
  if (c.integer("moe_layer_freq", 1) != 1)
    c.refuse("moe_layer_freq", "layers without experts between those that have them: only 1 is available");
  const std::string scores = c.text("scoring_func", third ? "sigmoid" : "softmax");
  if (scores == "softmax" || scores == "sigmoid")
    c.put("router", scores, "scoring_func");
  else
    c.refuse("scoring_func", fmt::format("'{}', expected softmax or sigmoid", scores));
  c.number_or("aux_loss_alpha", "aux_loss", third ? 0.0001 : 0.001);
  c.require("attention_bias", false, false, "biases of latent attention's products are not available");
  silu(c);
  tied(c, false);
  c.no_matter({"num_key_value_heads", "head_dim", "qk_head_dim"}, "latent attention has its own widths");
  c.no_matter({"norm_topk_prob", "routed_scaling_factor", "topk_method", "seq_aux"}, kValues);
  c.no_matter({"ep_size"}, "plan.expert says it");
  c.shape_or("n_group", "expert_groups", third ? 8 : 1);
  c.shape_or("topk_group", "groups_per_token", third ? 4 : 1);
  if (third) c.count_or("num_nextn_predict_layers", "mtp_depth", 0);
  if (third) c.left_out_of_kind("the routers' biases, one number an expert, which no gradient trains");
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

}  // namespace

void llama(Config& c) {
  widths(c, "llama", 2048);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  silu(c);
  llama_biases(c);
  tied(c, false);
  rotation(c, "partial_rotary_factor", 1);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

void mistral(Config& c) {
  widths(c, "llama", 131072);
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 8);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  silu(c);
  window(c, 4096);
  tied(c, false);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

void qwen2(Config& c) {
  widths(c, "llama", 32768);
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 32);
  silu(c);
  c.put("qkv_bias", "true", "model_type");
  tied(c, false);
  qwen_window(c);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

void qwen3(Config& c) {
  widths(c, "llama", 32768);
  c.shape("intermediate_size", "ffn_hidden");
  qwen3_attention(c);
  angles(c, 10000);
}

void qwen3_moe(Config& c) {
  widths(c, "moe", 32768);
  qwen3_attention(c);
  c.shape("num_experts", "experts");
  c.shape("num_experts_per_tok", "experts_per_token");
  c.shape("moe_intermediate_size", "expert_ffn_hidden");
  c.number_or("router_aux_loss_coef", "aux_loss", 0.001);
  if (c.integer("decoder_sparse_step", 1) != 1)
    c.refuse("decoder_sparse_step", "experts in some layers only, but the first: only 1 is available");
  if (c.elements("mlp_only_layers") > 0)
    c.refuse("mlp_only_layers", "a list of layers without experts is not available", "model.dense_layers: the first");
  c.no_matter({"intermediate_size"}, "every layer has experts");
  c.no_matter({"norm_topk_prob"}, kValues);
  angles(c, 10000);
}

void local_experts(Config& c, std::int64_t experts, std::int64_t chosen) {
  widths(c, "moe", 131072);
  c.shape("intermediate_size", "expert_ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 8);
  c.shape_or("num_local_experts", "experts", experts);
  c.shape_or("num_experts_per_tok", "experts_per_token", chosen);
  c.number_or("router_aux_loss_coef", "aux_loss", 0.001);
}

void mixtral(Config& c) {
  local_experts(c, 8, 2);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  silu(c);
  window(c, 0);
  tied(c, false);
  c.no_matter({"router_jitter_noise"}, kValues);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 1e6);
}

void deepseek_v2(Config& c) {
  deepseek(c, false);
}
void deepseek_v3(Config& c) {
  deepseek(c, true);
}

// Llama with no rotated positions in every so many-th layer.
void smollm3(Config& c) {
  widths(c, "llama", 32768);
  c.shape_or("intermediate_size", "ffn_hidden", 11008);
  c.shape_or("num_key_value_heads", "kv_heads", 4);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  silu(c);
  llama_biases(c);
  tied(c, true);
  const std::int64_t nope = c.integer("no_rope_layer_interval", 4);
  c.put("nope_every", fmt::format("{}", nope), "no_rope_layer_interval");
  check_pattern(c, "no_rope_layers", nope, "model.nope_every", [](const std::string& word) { return word == "0"; });
  c.require("use_sliding_window", false, false, "windows in the layers without rotated positions are not available");
  c.no_matter({"sliding_window", "max_window_layers", "layer_types"}, "use_sliding_window is false");
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 2e6);
}

// GLM-4-0414: norms behind the branches too, half of a head's columns turned, biases of queries, keys and values.
void glm4(Config& c) {
  widths(c, "llama", 131072);
  c.shape_or("intermediate_size", "ffn_hidden", 13696);
  c.shape_or("num_key_value_heads", "kv_heads", 2);
  c.shape_or("head_dim", "head_dim", 128);
  c.put("post_norms", "true", "model_type");
  c.put("qkv_bias", c.flag("attention_bias", true) ? "true" : "false", "attention_bias");
  silu(c);
  tied(c, false);
  rotation(c, "partial_rotary_factor", 0.5);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

void phi3(Config& c) {
  widths(c, "llama", 4096);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  silu(c);
  window(c, 0);
  tied(c, false);
  rotation(c, "partial_rotary_factor", 1);
  c.no_matter({"attention_bias"}, "no model of this kind has any");
  for (const char* key : {"attention_dropout", "resid_pdrop", "embd_pdrop"}) c.for_scenario(key, kDropout);
  angles(c, 10000);
}

// Command R: a block's attention and gated feed-forward layer side by side behind one LayerNorm without biases.
void cohere(Config& c) {
  widths(c, "gpt", 8192);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  c.put("position", "rope", "model_type");
  c.put("parallel_block", "one_norm", "model_type");
  silu(c);
  c.put("activation", "swiglu", "model_type");
  c.put("bias", "false", "model_type");
  c.require("attention_bias", false, false, "biases of attention's products alone are not available yet");
  c.require("use_qk_norm", false, false, "norms of each head's queries and keys are not available yet");
  tied(c, true);
  c.no_matter({"logit_scale"}, kValues);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

}  // namespace rehearse::plan::hf
