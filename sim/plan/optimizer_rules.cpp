// See sections.h.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/muon_shards.h"
#include "sim/plan/sections.h"

namespace rehearse::plan {

std::int64_t least_layers(const Scenario& s) {
  const Plan& plan = s.plan;
  if (s.training.optimizer != OptimizerKind::muon || plan.zero == 0 || plan.zero == 3) return 1;
  std::int64_t least = plan.context * plan.data / plan.replicas;
  if (plan.expert > 1) {
    const std::int64_t of_layer = s.model.experts / plan.expert;
    const std::int64_t ranks = plan.data / plan.replicas / plan.expert_replicas();
    least = std::max(least, (ranks + of_layer - 1) / of_layer);
  }
  return least;
}

namespace detail {

namespace {

// With ZeRO 1 and 2 shards are of whole matrices (lower/parallel/muon.cpp): no more ranks share a stage's than it has
// of a shape, which are as many as it has layers, or its layers have experts. by_time chooses later, from even stages
// on, and leaves each stage as many layers as it needs.
void check_muon_shards(const Node& optimizer, const Scenario& s) {
  const Plan& plan = s.plan;
  std::int64_t least = 0;
  for (std::size_t i = 0; i < plan.layers_per_stage.size(); ++i) {
    const bool end = i == 0 || i + 1 == plan.layers_per_stage.size();
    const std::int64_t layers = plan.layers_per_stage[i] - (plan.embedding_as_layer && end ? 1 : 0);
    if (layers > 0 && (least == 0 || layers < least)) least = layers;
  }
  const auto check = [&](std::int64_t ranks, std::int64_t matrices, const std::string& what) {
    if (ranks <= matrices) return;
    optimizer.error(fmt::format("muon: plan.zero = {} shares whole matrices among {} ranks, and a stage has {} of a "
                                "shape{}",
                                plan.zero, ranks, matrices, what),
                    fmt::format("plan.zero_group: {} or less, plan.zero: 0 or 3, or optimizer: adamw", matrices));
  };
  check(plan.context * plan.data / plan.replicas, least, "");
  if (plan.expert > 1)
    check(plan.data / plan.replicas / plan.expert_replicas(), least * (s.model.experts / plan.expert),
          " of experts' matrices");
}

void check_muon(const Node& training, const Scenario& s) {
  const Node optimizer = training.get("optimizer");
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    optimizer.error("muon: " + why, instead);
  };
  if (!s.model.is_transformer() || s.model.is_encoder() || s.model.has_decoder())
    refuse("it is of the matrices in blocks of gpt, llama and moe", "optimizer: adamw");
  if (s.plan.zero == 1 || s.plan.zero == 2) check_muon_shards(optimizer, s);
  if (s.training.fp8_params)
    refuse("weights in 8 bits alone (fp8_params) are updated by buckets, not by matrices", "fp8_params: false");
  if (s.training.moments != MomentsKind::fp32)
    training.get("moments").error("muon keeps its momentum, and the moments of the rest, in fp32", "moments: fp32");
}

// Whose squares are added by ranks that have parts of a tensor.
void check_lamb(const Node& training, const Scenario& s) {
  const Node optimizer = training.get("optimizer");
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    optimizer.error("lamb: " + why, instead);
  };
  if (s.model.family == model::Family::moe)
    refuse("experts, whose weights are several matrices in one tensor, have no norms of their own yet",
           "optimizer: adamw, or a model of another family");
  if (s.training.fp8_params)
    refuse("weights in 8 bits alone (fp8_params) are updated by buckets, not by tensors", "fp8_params: false");
  if (s.training.moments != MomentsKind::fp32)
    training.get("moments").error("lamb keeps its moments in fp32", "moments: fp32");
}

}  // namespace

void check_optimizer(const Node& training, const Scenario& s) {
  if (s.training.optimizer == OptimizerKind::muon) check_muon(training, s);
  if (s.training.optimizer == OptimizerKind::lamb) check_lamb(training, s);
  if (s.training.optimizer != OptimizerKind::adafactor) return;
  const Node optimizer = training.get("optimizer");
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    optimizer.error("adafactor: " + why, instead);
  };
  if (s.training.fp8_params)
    refuse("weights in 8 bits alone (fp8_params) are updated by buckets, not by tensors", "fp8_params: false");
  if (s.training.moments != MomentsKind::fp32)
    training.get("moments").error("adafactor keeps means of rows and columns, in fp32", "moments: fp32");
}

}  // namespace detail
}  // namespace rehearse::plan
