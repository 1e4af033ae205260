// See sections.h.
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

// FlashAttention has it from 2.6 on; in cuDNN's and the Triton kernels of the table, in the first FlashAttention, and
// in scaled_dot_product_attention, it is not.
bool caps_scores(model::AttentionKind kind) {
  using model::AttentionKind;
  return kind != AttentionKind::flash1 && kind != AttentionKind::flash_triton && kind != AttentionKind::cudnn &&
         kind != AttentionKind::sdpa_flash;
}

}  // namespace

// Where nobody chose a kernel and the framework's does not cap scores, FlashAttention 2, which models with caps are run
// with.
void choose_capped_attention(model::Model& m) {
  if (m.attention_softcap > 0 && !caps_scores(m.attention)) m.attention = model::AttentionKind::flash2;
}

// What does not go with key-value heads that several ranks of a tensor group have each.
void check_shared_key_head(const Sections& sections, const Scenario& s) {
  const auto refuse = [&](const Node& section, const char* key, const std::string& why, const std::string& instead) {
    (section.has(key) ? section.get(key) : section)
        .error(fmt::format("kv_heads = {} with tensor = {}: {}", s.model.kv_heads, s.plan.tensor, why), instead);
  };
  const Training& t = s.training;
  if (s.framework.name.starts_with("megatron"))
    refuse(sections.plan, "tensor",
           fmt::format("{} does not replicate key and value: before Megatron-Core 0.16 it refuses this, and from then "
                       "on it gathers what split weights give",
                       s.framework.name),
           fmt::format("framework: rehearse, or tensor: {}", s.model.kv_heads));
  if (t.lora())
    refuse(sections.training, "lora_rank", "adapters of products of queries, and of key and value, apart are not there",
           "lora_rank: 0, or as many key-value heads as ranks");
  if (t.narrow())
    refuse(sections.training, "precision", "key and value have no 8-bit products of their own yet", "precision: bf16");
  if (t.optimizer != OptimizerKind::adamw && t.optimizer != OptimizerKind::sgd)
    refuse(sections.training, "optimizer",
           "it looks at whole tensors, and that of queries, keys and values is held in two", "optimizer: adamw or sgd");
}

namespace {

// Numbers of rotated positions that are given and nothing reads (what a preset has may go unread), or that have no
// meaning together.
void check_angles(const Node& model, const model::Model& m) {
  const auto refuse = [&](const char* key, const std::string& why, const std::string& instead) {
    (model.has(key) ? model.get(key) : model).error(why, instead);
  };
  const model::Model plain;
  const auto given = [&](const char* key, bool changed) { return changed && model.has(key); };
  const bool rope = m.position == model::Position::rope, scaled = m.rope_scaling != RotationScaling::none;
  if (!rope && given("rope_base", m.rope_base != plain.rope_base))
    refuse("rope_base", "has no meaning without rotated positions", "position: rope");
  if (!rope && given("rope_scaling", scaled))
    refuse("rope_scaling", "has no meaning without rotated positions", "position: rope");
  const std::pair<const char*, bool> changed[] = {
      {"rope_factor", m.rope_factor != plain.rope_factor},
      {"rope_low_freq_factor", m.rope_low_freq_factor != plain.rope_low_freq_factor},
      {"rope_high_freq_factor", m.rope_high_freq_factor != plain.rope_high_freq_factor},
      {"rope_trained_len", m.rope_trained_len != plain.rope_trained_len}};
  for (const auto& [key, is] : changed)
    if (!scaled && given(key, is)) refuse(key, "has no meaning without rope_scaling", "rope_scaling: linear");
  const bool llama3 = m.rope_scaling == RotationScaling::llama3, yarn = m.rope_scaling == RotationScaling::yarn;
  for (const auto& [key, is] : changed) {
    const bool trained = key == std::string_view("rope_trained_len");
    if (!scaled || key == std::string_view("rope_factor") || llama3 || (trained && yarn) || !given(key, is)) continue;
    refuse(key, trained ? "is of rope_scaling: llama3 and yarn" : "is of rope_scaling: llama3", "rope_scaling: llama3");
  }
  if (m.rope_scaling == RotationScaling::llama3 && m.rope_high_freq_factor <= m.rope_low_freq_factor)
    refuse("rope_high_freq_factor",
           fmt::format("{} is not above rope_low_freq_factor = {}", m.rope_high_freq_factor, m.rope_low_freq_factor),
           "rope_high_freq_factor: 4");
  if (m.rope_scaling == RotationScaling::yarn && m.rope_base <= 1)
    refuse("rope_base", "yarn finds pairs by their base's logarithm, expected a base above 1", "rope_base: 10000");
}

// Sinks and chunks.
void check_other_layers(const Node& model, const Scenario& s) {
  const model::Model& m = s.model;
  const auto refuse = [&](const char* key, const std::string& why, const std::string& instead) {
    (model.has(key) ? model.get(key) : model).error(why, instead);
  };
  if (m.attention_sinks && m.attention == model::AttentionKind::unfused)
    refuse("attention_sinks", "scores that are kept have no sinks beside them yet",
           "a fused kernel (model.attention: flash)");
  if (m.chunked(s.training.seq_len) && s.training.packs())
    refuse("attention_chunk", "chunks of documents that are packed are not available yet",
           "training.documents: none, or attention_chunk: 0");
  if (m.chunked(s.training.seq_len) && s.plan.context > 1 && s.plan.context_kind != ContextKind::all_to_all)
    refuse("attention_chunk",
           fmt::format(
               "context_kind: {} gives each rank as much of a causal mask, not of chunks of {} below seq_len = {}",
               s.plan.context_kind == ContextKind::ring ? "ring" : "all_gather", m.attention_chunk, s.training.seq_len),
           "context_kind: all_to_all, or model.attention_chunk: 0");
  if (m.routing == model::Routing::recorded && m.weigh_expert_inputs)
    refuse("weigh_expert_inputs", "a record of routing gives tokens weights that add to 1", "another routing");
  if (m.routing == model::Routing::recorded && m.experts_every > 1)
    refuse("experts_every", "a record of routing has layers with experts one after the other", "another routing");
}

}  // namespace

// What Gemma and Qwen3 have, and the units of others do not know.
void check_llama_like(const Sections& sections, const Scenario& s) {
  const model::Model& m = s.model;
  const Node model = sections.root.get("model");
  const auto refuse = [&](const char* key, const std::string& why, const std::string& instead) {
    (model.has(key) ? model.get(key) : model).error(why, instead);
  };
  check_angles(model, m);
  if (m.attention_softcap > 0 && !caps_scores(m.attention))
    refuse("attention_softcap",
           fmt::format("attention: {} has no capped scores",
                       model::kAttentionNames[static_cast<std::size_t>(m.attention)]),
           "attention: flash, flash2, flash3 or unfused");
  if ((m.zero_centered_norms || m.qk_norm) && m.norm != model::NormKind::rmsnorm)
    refuse(m.qk_norm ? "qk_norm" : "zero_centered_norms", "is of RMSNorms, and the norms are layernorm",
           "norm: rmsnorm");
  if (m.post_norms && m.bias)
    refuse("post_norms", "a branch's bias is added behind it, where a norm would have to come first", "bias: false");
  if (m.post_norms && m.parallel_block != model::ParallelBlock::none)
    refuse("post_norms", "branches side by side are added up without norms behind them", "parallel_block: none");
  if (m.latent_attention() && (m.qk_norm || m.attention_softcap > 0 || m.query_scale > 0))
    refuse(m.qk_norm                 ? "qk_norm"
           : m.attention_softcap > 0 ? "attention_softcap"
                                     : "query_scale",
           "latent attention has norms and scores of its own", "leave it out");
  check_other_layers(model, s);
  if (m.rope_base_local > 0 && m.sliding_window == 0)
    refuse("rope_base_local", "is of layers with a window, and sliding_window = 0 gives none to any",
           "rope_base, or sliding_window: 1024");
}

}  // namespace rehearse::plan::detail
