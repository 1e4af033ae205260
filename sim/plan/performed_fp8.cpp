// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {
namespace {

// The first width of a rank's operands that blocks do not divide, as "name = number"; "" if they divide all.
std::string cut_width(const Scenario& s) {
  const model::Model& m = s.model;
  const std::int64_t block = s.training.fp8_block(), t = s.plan.tensor;
  const std::int64_t tokens = s.plan.micro_batch * s.training.seq_len / s.plan.context;
  const std::pair<const char*, std::int64_t> widths[] = {
      {"model.hidden", m.hidden},
      {"queries, keys and values of a rank", m.qkv_width() / t},
      {"heads of a rank, as columns", m.attention_width() / t},
      {"model.ffn_hidden of a rank", m.ffn_hidden / t},
      {"tokens of a rank's micro-batch", s.plan.sequence_parallel ? tokens / t : tokens}};
  for (const auto& [name, n] : widths)
    if (n % block != 0) return fmt::format("{} = {}", name, n);
  return "";
}

}  // namespace

void check_performed_precision(const Node& training, const Scenario& s) {
  if (s.purpose != Purpose::perform || !s.training.narrow()) return;
  const Node precision = training.get("precision");
  const char* const instead = "perform it with precision: bf16";
  if (s.training.four_bits()) {
    precision.error("4-bit products are simulated, and not performed yet", instead);
  } else if (s.model.family == model::Family::moe) {
    precision.error("8-bit products of experts are simulated, and not performed yet", instead);
  } else if (s.model.latent_attention()) {
    precision.error("8-bit products of latent attention are simulated, and not performed yet", instead);
  } else if (s.training.fp8_params) {
    training.get("fp8_params")
        .error("weights in 8 bits alone are simulated, and not performed yet", "perform it with fp8_params: false");
  } else if (s.training.fp8_block() > 0) {
    const std::string cut = cut_width(s);
    if (!cut.empty())
      precision.error(fmt::format("blocks of {} elements do not divide {}", s.training.fp8_block(), cut),
                      s.training.fp8_block() > 32 ? "multiples, or fp8_recipe: mxfp8 or tensorwise"
                                                  : "multiples, or fp8_recipe: tensorwise");
  }
}

}  // namespace rehearse::plan::detail
