// See families.h. Defaults are those of transformers' configuration classes, LlamaConfig and the like, by which a file
// without the key is read.
#include "sim/plan/hf/families.h"

#include <fmt/format.h>

#include <algorithm>

namespace rehearse::plan::hf {

namespace {

constexpr const char* kDropout = "model.dropout";
constexpr const char* kValues = "changes values, not shapes";

// Layers, widths and the vocabulary by the names that most files have; positions by `positions`.
void widths(Config& c, std::string_view family, std::int64_t positions) {
  c.put("family", std::string(family), "model_type");
  c.shape("num_hidden_layers", "layers");
  c.shape("hidden_size", "hidden");
  c.shape("num_attention_heads", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("max_position_embeddings", "max_seq_len", positions);
}

void key_value_heads(Config& c) {
  c.shape_or("num_key_value_heads", "kv_heads", "num_attention_heads");
}

// A gated feed-forward layer.
void silu(Config& c) {
  const std::string word = c.text("hidden_act", "silu");
  if (word != "silu" && word != "swish")
    c.refuse("hidden_act", fmt::format("'{}': the feed-forward layer of family llama is gated by silu", word));
}

void tied(Config& c, bool fallback) {
  const bool tied = c.flag("tie_word_embeddings", fallback);
  c.put("tied_embeddings", tied ? "true" : "false", "tie_word_embeddings");
}

// What transformers 5 writes for each layer.
void layer_types(Config& c) {
  c.no_matter({"layer_types"}, "all layers are alike");
  if (c.lists("layer_types", "sliding_attention"))
    c.refuse("layer_types", "sliding-window attention of some layers only is not available yet");
}

// Rotated features: all of them, here.
void whole_rotation(Config& c) {
  c.no_matter({"partial_rotary_factor"}, "all columns turn");
  if (c.number("partial_rotary_factor", 1) != 1)
    c.refuse("partial_rotary_factor", "a rotation of part of a head's columns is not available yet: all of them turn");
}

// 0: none where the file says nothing.
void window(Config& c, std::int64_t fallback) {
  if (fallback > 0 && !c.has("sliding_window"))
    c.shape_or("sliding_window", "sliding_window", fallback);
  else
    c.shape_or("sliding_window", "sliding_window", "null: every token sees all before it");
}

// Of Qwen2 and later: a window that most files name and do not use.
void unused_window(Config& c) {
  c.require("use_sliding_window", false, false, "sliding-window attention of some layers only is not available yet");
  c.no_matter({"sliding_window", "max_window_layers"}, "use_sliding_window is false");
  c.no_matter({"use_mrope"}, kValues);
}

void llama_biases(Config& c) {
  const bool attention = c.flag("attention_bias", false), mlp = c.flag("mlp_bias", false);
  if (attention != mlp)
    c.refuse(attention ? "attention_bias" : "mlp_bias",
             "biases of attention's products and none of the feed-forward layer's, or the other way round: there is "
             "model.bias for both, and model.qkv_bias for queries, keys and values");
  if (attention && mlp) c.put("bias", "true", "attention_bias");
}

void llama(Config& c) {
  widths(c, "llama", 2048);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  silu(c);
  llama_biases(c);
  tied(c, false);
  whole_rotation(c);
  c.for_scenario("attention_dropout", kDropout);
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
}

void qwen2(Config& c) {
  widths(c, "llama", 32768);
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 32);
  silu(c);
  c.put("qkv_bias", "true", "model_type");
  tied(c, false);
  unused_window(c);
  layer_types(c);
  c.for_scenario("attention_dropout", kDropout);
}

constexpr std::string_view kHeadNorms =
    "norms of each head's queries and keys are left out: 2 x head_dim parameters a layer, and their kernels";

void qwen3_attention(Config& c) {
  c.shape_or("num_key_value_heads", "kv_heads", c.kind() == "qwen3_moe" ? 4 : 32);
  c.shape_or("head_dim", "head_dim", 128);
  silu(c);
  c.require("attention_bias", false, false, "biases of attention's products alone are not available yet");
  tied(c, false);
  unused_window(c);
  layer_types(c);
  c.for_scenario("attention_dropout", kDropout);
  c.left_out_of_kind(std::string(kHeadNorms));
}

void qwen3(Config& c) {
  widths(c, "llama", 32768);
  c.shape("intermediate_size", "ffn_hidden");
  qwen3_attention(c);
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
}

void mixtral(Config& c) {
  widths(c, "moe", 131072);
  c.shape("intermediate_size", "expert_ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 8);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  c.shape_or("num_local_experts", "experts", 8);
  c.shape_or("num_experts_per_tok", "experts_per_token", 2);
  c.number_or("router_aux_loss_coef", "aux_loss", 0.001);
  silu(c);
  window(c, 0);
  tied(c, false);
  c.no_matter({"router_jitter_noise"}, kValues);
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
  for (const char* key : {"n_group", "topk_group"})
    if (c.number(key, 1) > 1) c.left_out(key, "each token chooses among all experts");
  c.left_out("num_nextn_predict_layers", "the modules of multi-token prediction");
  if (third) c.left_out_of_kind("the routers' biases, one number an expert, which no gradient trains");
  c.for_scenario("attention_dropout", kDropout);
}

void deepseek_v2(Config& c) {
  deepseek(c, false);
}
void deepseek_v3(Config& c) {
  deepseek(c, true);
}

void phi3(Config& c) {
  widths(c, "llama", 4096);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  silu(c);
  window(c, 0);
  tied(c, false);
  whole_rotation(c);
  c.no_matter({"attention_bias"}, "no model of this kind has any");
  for (const char* key : {"attention_dropout", "resid_pdrop", "embd_pdrop"}) c.for_scenario(key, kDropout);
}

// A feed-forward layer without a gate. gelu_new, gelu_fast and the like are its tanh form.
void ungated(Config& c, std::string_view key, const std::string& fallback) {
  const std::string word = c.text(key, fallback);
  if (word.starts_with("gelu"))
    c.put("activation", "gelu", key);
  else if (word == "relu")
    c.put("activation", "relu", key);
  else
    c.refuse(key, fmt::format("'{}', expected gelu in one of its forms, or relu", word));
}

void gpt2(Config& c) {
  c.put("family", "gpt", "model_type");
  c.shape("n_layer", "layers");
  c.shape("n_embd", "hidden");
  c.shape("n_head", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("n_positions", "max_seq_len", 1024);
  c.shape_or("n_inner", "ffn_hidden", "4 x n_embd");
  ungated(c, "activation_function", "gelu_new");
  tied(c, true);
  c.require("add_cross_attention", false, false, "a decoder that reads an encoder is not available yet");
  c.no_matter({"n_ctx"}, "n_positions says it");
  c.no_matter({"scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"}, kValues);
  c.no_matter(
      {"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"},
      "of classifiers");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) c.for_scenario(key, kDropout);
}

// Learned positions whose first two rows stand for no position (OPTLearnedPositionalEmbedding).
void opt(Config& c) {
  c.put("family", "gpt", "model_type");
  c.shape("num_hidden_layers", "layers");
  const std::int64_t hidden = c.shape("hidden_size", "hidden");
  c.shape("num_attention_heads", "heads");
  c.shape("vocab_size", "vocab");
  c.shape("ffn_dim", "ffn_hidden");
  const std::int64_t positions = c.shape_or("max_position_embeddings", "max_seq_len", 2048);
  c.put("position_rows", fmt::to_string(positions + 2), "max_position_embeddings");
  ungated(c, "activation_function", "relu");
  tied(c, true);
  c.require("do_layer_norm_before", true, true, "norms behind each branch are not available");
  c.require("_remove_final_layer_norm", false, false, "a model without its last norm is not available");
  c.require("enable_bias", true, true, "norms with biases and products without are not available for OPT");
  c.require("layer_norm_elementwise_affine", true, true, "norms without weights are not available");
  if (c.integer("word_embed_proj_dim", hidden) != hidden)
    c.refuse("word_embed_proj_dim", "an embedding of another width than the layers is not available");
  c.left_out("layerdrop", "layers dropped at random");
  for (const char* key : {"dropout", "attention_dropout", "activation_dropout"}) c.for_scenario(key, kDropout);
}

// A block's attention and feed-forward layer side by side; LayerNorms with biases whatever the products have.
void falcon(Config& c) {
  c.put("family", "gpt", "model_type");
  c.shape("num_hidden_layers", "layers");
  const std::int64_t hidden = c.shape("hidden_size", "hidden");
  const std::int64_t heads = c.shape("num_attention_heads", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("max_position_embeddings", "max_seq_len", 2048);
  c.put("position", "rope", "model_type");
  c.require("alibi", false, false, "ALiBi (a bias of each score by distance) is not available yet");
  const bool later = c.flag("new_decoder_architecture", false);
  if (later) {
    c.shape_or("num_kv_heads", "kv_heads", heads);
    const bool one = c.integer("num_ln_in_parallel_attn", 2) == 1;
    c.put("parallel_block", one ? "one_norm" : "two_norms", "new_decoder_architecture");
    c.no_matter({"parallel_attn", "multi_query"}, "new_decoder_architecture is true");
  } else {
    if (c.flag("multi_query", true)) c.put("kv_heads", "1", "multi_query");
    if (c.flag("parallel_attn", true)) c.put("parallel_block", "one_norm", "parallel_attn");
    c.no_matter({"num_kv_heads", "num_ln_in_parallel_attn"}, "new_decoder_architecture is false");
  }
  const bool bias = c.flag("bias", false);
  c.put("bias", bias ? "true" : "false", "bias");
  if (!bias) c.put("norm_bias", "true", "model_type");
  c.shape_or("ffn_hidden_size", "ffn_hidden", 4 * hidden);
  ungated(c, "activation", "gelu");
  tied(c, true);
  c.require("apply_residual_connection_post_layernorm", false, false, "a residual behind the norm is not available");
  for (const char* key : {"attention_dropout", "hidden_dropout"}) c.for_scenario(key, kDropout);
}

struct Missing {
  std::string_view model_type, what;
};

constexpr Missing kMissing[] = {
    {"gpt_neox", "rotation of part of a head's columns (rotary_pct) is not available yet"},
    {"gptj",
     "rotation of part of a head's columns, biases of the feed-forward layer alone and of the head are not "
     "available yet"},
    {"bloom", "ALiBi (a bias of each score by distance) and a norm behind the embedding are not available yet"},
    {"gemma", "a feed-forward layer gated by gelu, and an embedding that is scaled, are not available yet"},
    {"gemma2", "a feed-forward layer gated by gelu, norms behind each branch and capped scores are not available yet"},
    {"nemotron", "a squared relu and rotation of part of a head's columns are not available yet"},
    {"mpt", "ALiBi (a bias of each score by distance) is not available yet"},
    {"phi", "rotation of part of a head's columns is not available yet"},
    {"gpt_oss", "sliding-window attention of some layers only, sinks and biases of experts are not available yet"},
    {"qwen2_moe", "a gate of the shared expert is not available yet"},
    {"llama4", "images and text in one model are not available"},
    {"bert", "encoders (bert, t5) are not available yet"},
    {"roberta", "encoders (bert, t5) are not available yet"},
    {"t5", "encoders (bert, t5) are not available yet"},
    {"vit", "vision transformers are not available yet"},
    {"mamba", "state-space layers are not available"},
};

}  // namespace

// What every configuration has, and no product or buffer of training depends on.
void common(Config& c) {
  c.no_matter(
      {"auto_map", "transformers_version", "_name_or_path", "tokenizer_class", "is_decoder", "is_encoder_decoder"},
      "what it is");
  c.no_matter(
      {"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"},
      "ids of tokens");
  c.no_matter({"initializer_range", "init_std", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rope_theta",
               "rope_scaling", "rope_parameters", "rope_interleave", "original_max_position_embeddings"},
              kValues);
  c.no_matter({"use_cache", "max_length", "prefix", "task_specific_params", "generation_config", "pretraining_tp"},
              "of generation");
  c.no_matter({"id2label", "label2id", "finetuning_task", "output_attentions", "output_hidden_states",
               "output_router_logits", "return_dict", "chunk_size_feed_forward"},
              "of calls of the model");
  for (const char* key : {"_attn_implementation", "attn_implementation", "_flash_attn_2_enabled"})
    c.for_scenario(key, "model.attention");
  c.for_scenario("gradient_checkpointing", "plan.recompute");
  for (const char* key : {"torch_dtype", "dtype"}) c.for_scenario(key, "training.precision");
  c.left_out("quantization_config", "see training.precision");
}

const std::vector<Kind>& translated_kinds() {
  static const std::vector<Kind> all = {
      {"llama", "LlamaForCausalLM", llama},
      {"mistral", "MistralForCausalLM", mistral},
      {"mixtral", "MixtralForCausalLM", mixtral},
      {"gpt2", "GPT2LMHeadModel", gpt2},
      {"qwen2", "Qwen2ForCausalLM", qwen2},
      {"qwen3", "Qwen3ForCausalLM", qwen3},
      {"qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe},
      {"deepseek_v2", "DeepseekV2ForCausalLM", deepseek_v2},
      {"deepseek_v3", "DeepseekV3ForCausalLM", deepseek_v3},
      {"phi3", "Phi3ForCausalLM", phi3},
      {"opt", "OPTForCausalLM", opt},
      {"falcon", "FalconForCausalLM", falcon},
  };
  return all;
}

std::string_view missing_for(std::string_view model_type) {
  const auto* found = std::find_if(std::begin(kMissing), std::end(kMissing),
                                   [&](const Missing& each) { return each.model_type == model_type; });
  return found == std::end(kMissing) ? std::string_view() : found->what;
}

}  // namespace rehearse::plan::hf
