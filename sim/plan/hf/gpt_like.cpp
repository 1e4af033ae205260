// Feed-forward layers without a gate: GPT-2 and what followed it, with learned or rotated positions.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

void summaries(Config& c) {
  c.no_matter(
      {"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"},
      "of classifiers");
}

// A feed-forward layer without a gate. gelu_new, gelu_fast and the like are its tanh form.
void ungated(Config& c, std::string_view key, const std::string& fallback) {
  const std::string word = c.text(key, fallback);
  if (word.starts_with("gelu"))
    c.put("activation", "gelu", key);
  else if (word == "relu" || word == "relu2")
    c.put("activation", word == "relu" ? "relu" : "squared_relu", key);
  else
    c.refuse(key, fmt::format("'{}', expected gelu in one of its forms, relu or relu2", word));
}

// By the names that GPT-2 has for them.
void sizes(Config& c, std::int64_t positions) {
  c.put("family", "gpt", "model_type");
  c.shape("n_layer", "layers");
  c.shape("n_embd", "hidden");
  c.shape("n_head", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("n_positions", "max_seq_len", positions);
  c.shape_or("n_inner", "ffn_hidden", "4 x n_embd");
  ungated(c, "activation_function", "gelu_new");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) c.for_scenario(key, kDropout);
}

}  // namespace

void gpt2(Config& c) {
  sizes(c, 1024);
  tied(c, true);
  c.require("add_cross_attention", false, false, "a decoder that reads an encoder is not available yet");
  c.no_matter({"n_ctx"}, "n_positions says it");
  c.no_matter({"scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"}, kValues);
  summaries(c);
}

// A block's attention and feed-forward layer side by side, biases of the latter and of the head alone.
void gptj(Config& c) {
  sizes(c, 2048);
  c.put("position", "rope", "model_type");
  c.shape_or("rotary_dim", "rotary_dim", 64);
  c.put("parallel_block", "one_norm", "model_type");
  c.put("bias", "false", "model_type");
  for (const char* key : {"norm_bias", "mlp_bias", "head_bias"}) c.put(key, "true", "model_type");
  tied(c, false);
  c.no_matter({"rotary"}, "models of this kind rotate");
  c.no_matter({"scale_attn_weights"}, kValues);
  summaries(c);
}

// Side by side behind one norm, with biases everywhere.
void phi(Config& c) {
  widths(c, "gpt", 2048);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  c.put("position", "rope", "model_type");
  rotation(c, "partial_rotary_factor", 0.5);
  c.put("parallel_block", "one_norm", "model_type");
  c.put("head_bias", "true", "model_type");
  ungated(c, "hidden_act", "gelu_new");
  c.require("qk_layernorm", false, false, "LayerNorms of queries and keys are not available for Phi");
  tied(c, false);
  for (const char* key : {"attention_dropout", "embd_pdrop", "resid_pdrop"}) c.for_scenario(key, kDropout);
  angles(c, 10000);
}

// Biases by distance that are not learned, and a norm behind the embedding. Any length of sequences: what it was
// trained with is no limit, and stands in some files alone.
void bloom(Config& c) {
  c.put("family", "gpt", "model_type");
  c.shape(c.has("n_layer") ? "n_layer" : "num_hidden_layers", "layers");
  c.shape(c.has("n_embed") ? "n_embed" : "hidden_size", "hidden");
  c.shape(c.has("n_head") ? "n_head" : "num_attention_heads", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("seq_length", "max_seq_len", 2048);
  c.put("position", "alibi", "model_type");
  c.put("embedding_norm", "true", "model_type");
  tied(c, true);
  c.require("apply_residual_connection_post_layernorm", false, false, "a residual behind the norm is not available");
  c.no_matter({"attention_softmax_in_fp32", "masked_softmax_fusion", "bias_dropout_fusion", "slow_but_exact",
               "skip_bias_add", "skip_bias_add_qkv", "offset_alibi"},
              "of other programs");
  for (const char* key : {"attention_dropout", "hidden_dropout"}) c.for_scenario(key, kDropout);
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
  c.put("position", c.flag("alibi", false) ? "alibi" : "rope", "alibi");
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
  angles(c, 10000);
}

// StarCoder: GPT-2 with one key-value head.
void gpt_bigcode(Config& c) {
  c.put("family", "gpt", "model_type");
  c.shape("n_layer", "layers");
  c.shape("n_embd", "hidden");
  c.shape("n_head", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("n_positions", "max_seq_len", 1024);
  c.shape_or("n_inner", "ffn_hidden", "4 x n_embd");
  if (c.flag("multi_query", true)) c.put("kv_heads", "1", "multi_query");
  ungated(c, "activation_function", "gelu_pytorch_tanh");
  tied(c, true);
  c.no_matter({"scale_attn_weights", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"}, kValues);
  summaries(c);
  c.no_matter({"inference_runner", "max_batch_size", "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache",
               "validate_runner_input"},
              "of generation");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) c.for_scenario(key, kDropout);
}

void starcoder2(Config& c) {
  widths(c, "gpt", 4096);
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("num_key_value_heads", "kv_heads", 2);
  c.put("position", "rope", "model_type");
  ungated(c, "hidden_act", "gelu_pytorch_tanh");
  c.require("use_bias", true, true, "norms with biases and products without are not available for StarCoder2");
  window(c, 0);
  tied(c, true);
  c.no_matter({"norm_epsilon"}, kValues);
  c.no_matter({"norm_type", "mlp_type"}, "models of this kind have one");
  for (const char* key : {"attention_dropout", "residual_dropout", "embedding_dropout"}) c.for_scenario(key, kDropout);
  angles(c, 10000);
}

void gpt_neox(Config& c) {
  widths(c, "gpt", 2048);
  c.shape("intermediate_size", "ffn_hidden");
  c.put("position", "rope", "model_type");
  const bool parallel = c.flag("use_parallel_residual", true);
  c.put("parallel_block", parallel ? "two_norms" : "none", "use_parallel_residual");
  rotation(c, "rotary_pct", 0.25);
  c.require("attention_bias", true, true, "a feed-forward layer with biases and attention without is not available");
  ungated(c, "hidden_act", "gelu");
  tied(c, false);
  angles(c, 10000, "rotary_emb_base");
  for (const char* key : {"attention_dropout", "hidden_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"})
    c.for_scenario(key, kDropout);
  c.no_matter({"classifier_dropout"}, "of classifiers");
}

// LayerNorms with biases and products without, a squared relu, grouped queries.
void nemotron(Config& c) {
  widths(c, "gpt", 4096);
  c.shape("intermediate_size", "ffn_hidden");
  key_value_heads(c);
  c.shape_or("head_dim", "head_dim", "hidden_size / num_attention_heads");
  c.put("position", "rope", "model_type");
  rotation(c, "partial_rotary_factor", 0.5);
  ungated(c, "hidden_act", "relu2");
  c.require("attention_bias", false, false, "biases of attention's products alone are not available yet");
  c.require("mlp_bias", false, false, "biases of the feed-forward layer alone are not available yet");
  c.put("bias", "false", "model_type");
  c.put("norm_bias", "true", "model_type");
  tied(c, false);
  c.no_matter({"norm_eps"}, kValues);
  c.for_scenario("attention_dropout", kDropout);
  angles(c, 10000);
}

}  // namespace rehearse::plan::hf
