// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

// Moonshot's distributed Muon gathers whole matrices of shards before the step (arXiv 2502.16982, section 2.3); here
// ranks have them.
void check_muon(const Node& training, const Scenario& s) {
  const Node optimizer = training.get("optimizer");
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    optimizer.error("muon: " + why, instead);
  };
  if (!s.model.is_transformer() || s.model.is_encoder())
    refuse("it is of the matrices in blocks of gpt, llama and moe", "optimizer: adamw");
  if (s.plan.zero > 0)
    refuse(fmt::format("it makes whole matrices orthogonal, and plan.zero = {} cuts them into shards", s.plan.zero),
           "plan.zero: 0, or optimizer: adamw");
  if (s.plan.tensor > 1)
    refuse(fmt::format("it makes whole matrices orthogonal, and plan.tensor = {} splits them", s.plan.tensor),
           "plan.tensor: 1, or optimizer: adamw");
  if (s.training.lora()) refuse("adapters are trained by adamw or sgd", "optimizer: adamw");
  if (s.training.fp8_params)
    refuse("weights in 8 bits alone (fp8_params) are updated by buckets, not by matrices", "fp8_params: false");
  if (s.training.moments != MomentsKind::fp32)
    training.get("moments").error("muon keeps its momentum, and the moments of the rest, in fp32", "moments: fp32");
}

}  // namespace

void check_optimizer(const Node& training, const Scenario& s) {
  if (s.training.optimizer == OptimizerKind::muon) check_muon(training, s);
  if (s.training.optimizer != OptimizerKind::adafactor) return;
  const Node optimizer = training.get("optimizer");
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    optimizer.error("adafactor: " + why, instead);
  };
  if (s.plan.zero > 0)
    refuse(fmt::format("its means are of whole rows and columns, and plan.zero = {} cuts tensors into shards",
                       s.plan.zero),
           "plan.zero: 0, or optimizer: adamw");
  if (s.plan.tensor > 1)
    refuse(fmt::format("its means are of whole rows and columns, and plan.tensor = {} splits matrices", s.plan.tensor),
           "plan.tensor: 1, or optimizer: adamw");
  if (s.model.family == model::Family::moe)
    refuse("experts, whose weights are several matrices in one tensor, have no row and column means yet",
           "optimizer: adamw, or a model of another family");
  if (s.training.fp8_params)
    refuse("weights in 8 bits alone (fp8_params) are updated by buckets, not by tensors", "fp8_params: false");
  if (s.training.moments != MomentsKind::fp32)
    training.get("moments").error("adafactor keeps means of rows and columns, in fp32", "moments: fp32");
}

}  // namespace rehearse::plan::detail
