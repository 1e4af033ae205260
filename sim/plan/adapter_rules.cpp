// What low-rank adaptation is not there for; see sections.h.
#include <fmt/format.h>

#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void check_adapters(const Node& training, const Scenario& s, const std::function<bool(const char*)>& sound) {
  if (!s.training.lora() || !sound("training.lora_rank")) return;
  const Node rank = training.get("lora_rank");
  const model::Model& m = s.model;
  const Plan& plan = s.plan;
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    rank.error(fmt::format("lora_rank = {}: {}", s.training.lora_rank, why), instead);
  };
  if (m.family != model::Family::gpt && m.family != model::Family::llama && m.family != model::Family::moe)
    return refuse(m.has_decoder()  ? "blocks that attend to another sequence have no adapters yet"
                  : m.is_encoder() ? "blocks with their norms behind their sums have no adapters yet"
                                   : "adapters are of a transformer's blocks, which this model has none of",
                  "lora_rank: 0, or a model of family gpt, llama or moe");
  if (m.expert_latent > 0)
    refuse("products around the latent of experts have no adapters yet", "lora_rank: 0, or model.expert_latent: 0");
  if (sound("training.precision")) {
    if (s.training.four_bits()) refuse("products in 4 bits have no adapters beside them yet", "precision: bf16");
    if (s.training.eight_bits() && s.purpose == Purpose::perform)
      refuse("products in 8 bits beside adapters are simulated, but not performed", "precision: bf16");
    if (s.training.eight_bits() && (m.family == model::Family::moe || m.latent_attention()))
      refuse("products of experts and latent attention in 8 bits have no adapters beside them yet", "precision: bf16");
    if (s.training.fp8_params)
      refuse("frozen weights are held in 16 bits beside their 8-bit copies", "fp8_params: false");
  }
  if (sound("plan.schedule") && plan.pipeline > 1 && schedule_of(plan.schedule).parts_backward())
    refuse(fmt::format("schedule {} puts weight gradients into a part of their own, and frozen weights have none",
                       schedule_of(plan.schedule).name()),
           "schedule: 1f1b");
  if (sound("plan.recompute") && plan.recompute == Recompute::ops)
    refuse("ops recomputation knows no adapters", "recompute: full, selective or none");
  if (sound("plan.fused_epilogues") && plan.fused_epilogues != FusedEpilogues::none)
    refuse("a product with an epilogue has no place for what its adapter adds", "fused_epilogues: none");
}

}  // namespace rehearse::plan::detail
