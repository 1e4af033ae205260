// What several kinds of models have in common, and the functions of families.h's table.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/plan/hf/families.h"

namespace rehearse::plan::hf {

inline constexpr const char* kDropout = "model.dropout";
inline constexpr const char* kValues = "changes values, not shapes";

// Layers, widths and the vocabulary by the names that most files have; positions by `positions`.
inline void widths(Config& c, std::string_view family, std::int64_t positions) {
  c.put("family", std::string(family), "model_type");
  c.shape("num_hidden_layers", "layers");
  c.shape("hidden_size", "hidden");
  c.shape("num_attention_heads", "heads");
  c.shape("vocab_size", "vocab");
  c.shape_or("max_position_embeddings", "max_seq_len", positions);
}

inline void key_value_heads(Config& c) {
  c.shape_or("num_key_value_heads", "kv_heads", "num_attention_heads");
}

// A gated feed-forward layer.
inline void silu(Config& c) {
  const std::string word = c.text("hidden_act", "silu");
  if (word != "silu" && word != "swish")
    c.refuse("hidden_act", fmt::format("'{}': the feed-forward layer of family llama is gated by silu", word));
}

inline void tied(Config& c, bool fallback) {
  const bool tied = c.flag("tie_word_embeddings", fallback);
  c.put("tied_embeddings", tied ? "true" : "false", "tie_word_embeddings");
}

// Which layers have a window, as transformers writes it for each: "sliding_attention" or "full_attention". What can be
// said is all of them, or all but the last of so many.
inline void windowed_layers(Config& c) {
  const std::vector<std::string> types = c.words("layer_types");
  const auto full = std::find(types.begin(), types.end(), "full_attention");
  const auto every = static_cast<std::size_t>(full - types.begin()) + 1;
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i] != ((i + 1) % every == 0 ? "full_attention" : "sliding_attention"))
      return c.refuse("layer_types",
                      fmt::format("'{}' of layer {}: expected windows (sliding_attention) in all layers, or in all but "
                                  "every so many-th (full_attention)",
                                  types[i], i));
  if (full != types.end()) c.derived("layer_types", "full_attention_every", static_cast<std::int64_t>(every));
}

// What a list says of each layer, if there is one: `every`-th ones are unlike the others. `is(word)`: whether it says
// that of one.
template <class Is>
void check_pattern(Config& c, std::string_view key, std::int64_t every, const char* ours, const Is& is) {
  const std::vector<std::string> words = c.words(key);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool last = every > 0 && (static_cast<std::int64_t>(i) + 1) % every == 0;
    if (is(words[i]) == last) continue;
    return c.refuse(
        key, fmt::format("'{}' of layer {}, expected every {}th layer alone to differ ({})", words[i], i, every, ours));
  }
}

// rope_scaling, or rope_parameters, which has one for each kind of layer where these have bases of their own.
std::vector<std::string> path_of_scaling(Config& c);

// The share of a head's columns that turn, of which transformers takes the whole number below; transformers 5 has it
// in rope_parameters, whatever it was called before.
inline void rotation(Config& c, std::string_view key, double fallback) {
  const std::int64_t heads = c.shape_read("num_attention_heads"), given = c.shape_read("head_dim");
  const std::int64_t head_dim = given > 0 ? given : heads > 0 ? c.shape_read("hidden_size") / heads : 0;
  std::vector<std::string> path = path_of_scaling(c);
  path.emplace_back("partial_rotary_factor");
  const bool within = path.front() == "rope_parameters" && c.within(path);
  const double share = within ? c.number_within(path, fallback) : c.number(key, fallback);
  if (within) c.no_matter({key}, "rope_parameters says it");
  if (share == 1) return within ? void() : c.no_matter({key}, "all columns turn");
  if (!(share > 0 && share <= 1))
    return c.refuse(within ? "rope_parameters" : key,
                    fmt::format("{} of a head's columns turn, expected 0 to 1", share));
  const auto columns = static_cast<std::int64_t>(static_cast<double>(head_dim) * share);
  if (within)
    c.derived_within(path, "rotary_dim", columns);
  else
    c.derived(key, "rotary_dim", columns);
}

// Of rotated positions (rotation.cpp): the base, by its own key or as transformers 5 has it in rope_parameters; and
// how angles were made smaller, where that is one of the ways of model.rope_scaling.
void angles(Config& c, double base, std::string_view key = "rope_theta");

// 0: none where the file says nothing.
inline void window(Config& c, std::int64_t fallback) {
  if (fallback > 0 && !c.has("sliding_window"))
    c.shape_or("sliding_window", "sliding_window", fallback);
  else
    c.shape_or("sliding_window", "sliding_window", "null: every token sees all before it");
}

// llama_like.cpp
void llama(Config& c);
void mistral(Config& c);
// The widths of models with experts, by Mixtral's names: so many of them, and chosen for each token, if nothing is
// said.
void local_experts(Config& c, std::int64_t experts, std::int64_t chosen);
void mixtral(Config& c);
void qwen2(Config& c);
void qwen3(Config& c);
void qwen3_moe(Config& c);
void deepseek_v2(Config& c);
void deepseek_v3(Config& c);
void smollm3(Config& c);
void glm4(Config& c);
void phi3(Config& c);
void cohere(Config& c);
// other_experts.cpp
void gpt_oss(Config& c);
void llama4_text(Config& c);
void glm4_moe(Config& c);
// hybrid.cpp
void nemotron_h(Config& c);
void mamba2(Config& c);
// gemma.cpp
void gemma(Config& c);
void gemma2(Config& c);
void gemma3_text(Config& c);
// gpt_like.cpp
void gpt2(Config& c);
void gpt_bigcode(Config& c);
void gpt_neox(Config& c);
void starcoder2(Config& c);
void phi(Config& c);
void gptj(Config& c);
void bloom(Config& c);
void opt(Config& c);
void falcon(Config& c);
void nemotron(Config& c);
// encoders.cpp
void bert(Config& c);
void t5(Config& c);
void mt5(Config& c);

void vit(Config& c);
void resnet(Config& c);

}  // namespace rehearse::plan::hf
