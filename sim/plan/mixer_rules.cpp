// See sections.h.
#include <fmt/format.h>

#include "sim/plan/nearest_numbers.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

// Keys whose meaning is of blocks of two branches.
void check_keys_of_blocks(const Node& model, const model::Model& m) {
  const auto refuse = [&](const char* key, const std::string& why, const std::string& instead) {
    (model.has(key) ? model.get(key) : model.get("layer_pattern")).error(why, instead);
  };
  if (m.parallel_block != model::ParallelBlock::none)
    refuse("parallel_block", "layers of layer_pattern have one branch each, with none beside it",
           "parallel_block: none");
  if (m.post_norms)
    refuse("post_norms", "norms behind the branches of layer_pattern are not available yet", "post_norms: false");
  if (m.latent_attention())
    refuse("kv_lora_rank", "latent attention among the layers of layer_pattern is not available yet",
           "kv_lora_rank: 0");
  if (m.dense_layers > 0) refuse("dense_layers", "layer_pattern says which layers have experts", "leave it out");
  if (m.experts_every > 1) refuse("experts_every", "layer_pattern says which layers have experts", "leave it out");
  if (m.routing == model::Routing::recorded)
    refuse("routing", "a record of routing has layers with experts one after the other", "another routing");
}

}  // namespace

void check_one_branch(const Sections& sections, const Scenario& s) {
  const model::Model& m = s.model;
  if (!m.one_branch()) return;
  check_keys_of_blocks(sections.root.get("model"), m);
  if (s.training.lora())
    sections.training.get("lora_rank")
        .error("adapters of the layers of layer_pattern are not available yet", "lora_rank: 0");
  if (!m.has_mixers()) return;
  if (m.mamba_groups % s.plan.tensor != 0)
    sections.plan.get("tensor").error(
        fmt::format("mamba_groups = {} is not divisible by tensor = {}: a rank has whole groups of a mixer's heads; "
                    "nearest tensor sizes that divide it: {}",
                    m.mamba_groups, s.plan.tensor, nearest_divisors(m.mamba_groups, s.plan.tensor, kMaxRanks)));
  if (s.plan.context > 1)
    sections.plan.get("context").error(
        fmt::format("context = {}: a mixer's states pass from token to token, and do not pass from rank to rank yet",
                    s.plan.context),
        "context: 1; plan.tensor splits a mixer by its groups");
  if (s.training.packs())
    sections.training.get("documents")
        .error("a mixer's states and convolution pass from one packed document into the next one's", "documents: none");
}

}  // namespace rehearse::plan::detail
