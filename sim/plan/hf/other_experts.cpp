// Experts beside attention that differs from layer to layer, or has biases: gpt-oss, Llama 4, GLM-4.5.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

void gpt_oss(Config& c) {
  local_experts(c, 128, 4);
  c.shape_or("head_dim", "head_dim", 64);
  c.no_matter({"experts_per_token"}, "num_experts_per_tok says it");
  c.require("attention_bias", true, true, "biases of experts without those of attention are not available");
  c.put("bias", "true", "model_type");
  c.put("attention_sinks", "true", "model_type");
  silu(c);
  c.put("activation", "swiglu_oai", "model_type");
  for (const auto& [key, value] : {std::pair{"swiglu_limit", 7.0}, std::pair{"swiglu_alpha", 1.702}})
    if (const double given = c.number(key, value); given != value)
      c.refuse(key, fmt::format("{}, where activation: swiglu_oai has {}", given, value));
  window(c, 128);
  if (c.elements("layer_types") > 0)
    windowed_layers(c);
  else
    c.derived("layer_types", "full_attention_every", 2);
  tied(c, false);
  c.no_matter({"initial_context_length"}, "rope_scaling says it");
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 150000);
}

void llama4_text(Config& c) {
  local_experts(c, 16, 1);
  c.shape_or("head_dim", "head_dim", 128);
  c.shape_or("intermediate_size_mlp", "ffn_hidden", 16384);
  c.put("shared_experts", "1", "model_type");
  c.put("router", "sigmoid", "model_type");
  c.put("weigh_expert_inputs", "true", "model_type");
  const std::int64_t step = c.integer("interleave_moe_layer_step", 1);
  c.put("experts_every", fmt::format("{}", step), "interleave_moe_layer_step");
  if (const std::vector<std::string> listed = c.words("moe_layers"); !listed.empty()) {
    std::vector<std::string> own;
    for (std::int64_t layer = step - 1; step > 0 && layer < c.shape_read("num_hidden_layers"); layer += step)
      own.push_back(fmt::format("{}", layer));
    if (listed != own) c.refuse("moe_layers", "others than every interleave_moe_layer_step-th (model.experts_every)");
  }
  const std::int64_t nope = c.integer("no_rope_layer_interval", 4);
  c.put("nope_every", fmt::format("{}", nope), "no_rope_layer_interval");
  check_pattern(c, "no_rope_layers", nope, "model.nope_every", [](const std::string& word) { return word == "0"; });
  check_pattern(c, "layer_types", nope, "model.nope_every",
                [](const std::string& word) { return word == "full_attention"; });
  if (c.has("attention_chunk_size"))
    c.shape_or("attention_chunk_size", "attention_chunk", "null: every token sees all before it");
  else
    c.shape_or("attention_chunk_size", "attention_chunk", 8192);
  silu(c);
  tied(c, false);
  c.require("attention_bias", false, false, "biases of attention's products alone are not available yet");
  if (c.flag("use_qk_norm", true))
    c.left_out_of_kind("use_qk_norm: norms without weights of queries and keys that were rotated");
  c.no_matter({"attn_temperature_tuning", "floor_scale", "attn_scale", "router_jitter_noise"}, kValues);
  c.no_matter({"for_llm_compressor", "_attn_implementation_autoset"}, "of calls of the model");
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 500000);
}

void glm4_moe(Config& c) {
  widths(c, "moe", 131072);
  c.shape_or("num_key_value_heads", "kv_heads", 8);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("moe_intermediate_size", "expert_ffn_hidden", 1408);
  c.shape_or("n_routed_experts", "experts", 128);
  c.shape_or("num_experts_per_tok", "experts_per_token", 8);
  c.count_or("n_shared_experts", "shared_experts", 1);
  c.count_or("first_k_dense_replace", "dense_layers", 1);
  c.shape_or("n_group", "expert_groups", 1);
  c.shape_or("topk_group", "groups_per_token", 1);
  c.put("router", "sigmoid", "model_type");
  c.count_or("num_nextn_predict_layers", "mtp_depth", 0);
  c.put("qkv_bias", c.flag("attention_bias", false) ? "true" : "false", "attention_bias");
  c.put("qk_norm", c.flag("use_qk_norm", false) ? "true" : "false", "use_qk_norm");
  silu(c);
  tied(c, false);
  rotation(c, "partial_rotary_factor", 0.5);
  c.no_matter({"norm_topk_prob", "routed_scaling_factor", "scoring_func", "topk_method"}, kValues);
  c.left_out_of_kind("the routers' biases, one number an expert, which no gradient trains");
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

}  // namespace rehearse::plan::hf
