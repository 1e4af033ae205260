// Gemma 1 to 3 (text): Llama with a feed-forward layer gated by gelu, norms around 1 and an embedding that is scaled;
// from 2 on with norms behind the branches and windows in some layers, 2 with capped scores and logits, 3 with norms of
// queries and keys. Defaults are those of transformers' GemmaConfig, Gemma2Config and Gemma3TextConfig.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

// transformers reads hidden_activation, and takes gelu_pytorch_tanh where it is missing, whatever hidden_act says.
void gated_by_gelu(Config& c) {
  const std::string word = c.text("hidden_activation", "gelu_pytorch_tanh");
  if (!word.starts_with("gelu"))
    c.refuse("hidden_activation", fmt::format("'{}': the feed-forward layer of Gemma is gated by gelu", word));
  c.no_matter({"hidden_act"}, "hidden_activation says it");
  c.put("activation", "geglu", "model_type");
}

void of_all(Config& c, std::int64_t positions, std::int64_t key_heads, std::int64_t head_dim) {
  if (c.kind() == "gemma3_text") {  // whose files in models for images say only what is not Gemma3TextConfig's
    c.put("family", "llama", "model_type");
    c.shape_or("num_hidden_layers", "layers", 26);
    c.shape_or("hidden_size", "hidden", 2304);
    c.shape_or("num_attention_heads", "heads", 8);
    c.shape_or("vocab_size", "vocab", 262208);
    c.shape_or("max_position_embeddings", "max_seq_len", positions);
    c.shape_or("intermediate_size", "ffn_hidden", 9216);
  } else {
    widths(c, "llama", positions);
    c.shape("intermediate_size", "ffn_hidden");
  }
  c.shape_or("num_key_value_heads", "kv_heads", key_heads);
  c.shape_or("head_dim", "head_dim", head_dim);
  gated_by_gelu(c);
  c.require("attention_bias", false, false, "biases of attention's products alone are not available yet");
  tied(c, true);
  c.put("scaled_embeddings", "true", "model_type");
  c.put("zero_centered_norms", "true", "model_type");
  c.require("use_bidirectional_attention", false, false, "a decoder whose tokens see those after them is not there");
  c.no_matter({"cache_implementation"}, "of generation");
  c.for_scenario("attention_dropout", kDropout);
}

// Null says that there is none.
void caps(Config& c, double scores, double logits) {
  const auto cap = [&](const char* key, const char* ours, double fallback) {
    c.number_or(key, ours, c.has(key) ? 0 : fallback);
  };
  cap("attn_logit_softcapping", "attention_softcap", scores);
  cap("final_logit_softcapping", "logit_softcap", logits);
}

// Which layers have a window: all but every K-th, by a list or a number.
void local_layers(Config& c, std::int64_t every) {
  c.no_matter({"_sliding_window_pattern"}, "sliding_window_pattern or layer_types says it");
  if (c.elements("layer_types") > 0) {
    c.no_matter({"sliding_window_pattern"}, "layer_types says it");
    return windowed_layers(c);
  }
  c.shape_or("sliding_window_pattern", "full_attention_every", every);
}

}  // namespace

void gemma(Config& c) {
  of_all(c, 8192, 16, 256);
  angles(c, 10000);
}

void gemma2(Config& c) {
  of_all(c, 8192, 4, 256);
  c.put("post_norms", "true", "model_type");
  c.shape_or("query_pre_attn_scalar", "query_scale", 256);
  caps(c, 50, 30);
  window(c, 4096);
  c.no_matter({"sliding_window_size"}, "sliding_window says it");
  local_layers(c, 2);
  angles(c, 10000);
}

void gemma3_text(Config& c) {
  of_all(c, 131072, 4, 256);
  c.put("post_norms", "true", "model_type");
  c.put("qk_norm", "true", "model_type");
  c.shape_or("query_pre_attn_scalar", "query_scale", 256);
  caps(c, 0, 0);
  window(c, 4096);
  local_layers(c, 6);
  if (!c.within({"rope_parameters", "sliding_attention"}))
    c.number_or("rope_local_base_freq", "rope_base_local", 10000);
  angles(c, 1e6);
}

}  // namespace rehearse::plan::hf
