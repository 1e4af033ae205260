// See sections.h.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {
namespace {

std::int64_t block_of(const Training& t) {
  return t.four_bits() ? 16 : t.fp8_block();
}

// The first width of a rank's operands that blocks do not divide, as "name = number"; "" if they divide all.
std::string cut_width(const Scenario& s) {
  const model::Model& m = s.model;
  const std::int64_t block = block_of(s.training), t = s.plan.tensor;
  const std::int64_t tokens = s.plan.micro_batch * s.training.seq_len / s.plan.context;
  const bool experts = m.family == model::Family::moe, latent = m.latent_attention();
  std::vector<std::pair<const char*, std::int64_t>> widths{
      {"model.hidden", m.hidden}, {"tokens of a rank's micro-batch", s.plan.sequence_parallel ? tokens / t : tokens}};
  if (m.has_attention()) widths.emplace_back("heads of a rank, as columns", m.attention_width() / t);
  if (m.has_mixers()) {
    widths.emplace_back("a mixer's first product of a rank", m.mamba_in() / t);
    widths.emplace_back("a mixer's heads of a rank, as columns", m.mamba_inner() / t);
  }
  if (!latent && m.has_attention()) widths.emplace_back("queries, keys and values of a rank", m.qkv_width() / t);
  if (latent) {
    if (m.q_lora_rank > 0) widths.emplace_back("model.q_lora_rank", m.q_lora_rank);
    widths.emplace_back("model.kv_lora_rank", m.kv_lora_rank);
    widths.emplace_back("model.kv_lora_rank with model.qk_rope_head_dim", m.kv_lora_rank + m.qk_rope_head_dim);
    widths.emplace_back("queries of a rank", m.heads * m.head_dim / t);
    widths.emplace_back("keys and values of a rank, not rotated", m.heads * (m.qk_nope_head_dim + m.v_head_dim) / t);
  }
  if (m.has_dense_ffn()) widths.emplace_back("model.ffn_hidden of a rank", m.ffn_hidden / t);
  if (experts)
    widths.emplace_back("model.expert_ffn_hidden of a rank", m.expert_ffn_hidden / (s.plan.whole_experts() ? 1 : t));
  if (experts && m.expert_latent > 0) widths.emplace_back("model.expert_latent", m.expert_latent);
  if (experts && m.shared_experts > 0)
    widths.emplace_back("shared experts' columns of a rank", m.shared_experts * m.shared_ffn_hidden / t);
  for (const auto& [name, n] : widths)
    if (n % block != 0) return fmt::format("{} = {}", name, n);
  return "";
}

}  // namespace

void check_performed_precision(const Node& training, const Scenario& s) {
  if (s.purpose != Purpose::perform || !s.training.narrow()) return;
  const Node precision = training.get("precision");
  const std::int64_t block = block_of(s.training);
  const bool experts = s.model.family == model::Family::moe;
  if (s.training.four_bits() && (experts || s.model.latent_attention())) {
    precision.error(fmt::format("4-bit products of {} are simulated, and not performed yet",
                                experts ? "experts" : "latent attention"),
                    "perform it with precision: fp8 or bf16");
  } else if (s.training.four_bits() && s.plan.sequence_parallel && s.plan.tensor > 1) {
    precision.error(
        "shards of a sequence that are transformed have scales of their own, with which they cannot be put "
        "together",
        "perform it with plan.sequence_parallel: false, or precision: fp8");
  } else if (s.training.fp8_params) {
    training.get("fp8_params")
        .error("weights in 8 bits alone are simulated, and not performed yet", "perform it with fp8_params: false");
  } else if (block > 0) {
    const std::string cut = cut_width(s);
    if (!cut.empty())
      precision.error(fmt::format("blocks of {} elements do not divide {}", block, cut),
                      s.training.four_bits() ? "multiples, or precision: fp8"
                      : block > 32           ? "multiples, or fp8_recipe: mxfp8 or tensorwise"
                                             : "multiples, or fp8_recipe: tensorwise");
  }
}

}  // namespace rehearse::plan::detail
