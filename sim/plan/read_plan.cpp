// The scenario's `plan:` mapping: how the model is split. Keys and values of the format that this program does not have
// yet are known keys, accepted at their default and otherwise refused with what is available. Sizes that depend on
// other sections (data, layers a stage) are left to resolve().
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/text_check.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

using rehearse::detail::shown;

void require_one(const Node& node, const char* key, const char* what) {
  if (node.integer(key, 1, 1, kMaxRanks) > 1) {
    not_available(node.get(key), fmt::format("{} ({} above 1)", what, key), fmt::format("{}: 1", key));
  }
}

// Keys that are no keys because they follow from others.
void explain_derived_keys(const Node& node) {
  const std::vector<std::string> given = node.keys();
  const auto follows = [&](const char* key, const char* how, const char* hint) {
    if (std::find(given.begin(), given.end(), key) != given.end())
      node.get(key).error(fmt::format("is no key: {}", how), hint);
  };
  follows("data", "the data parallel size follows, gpus / (tensor * pipeline)", "set cluster.gpus, or split less");
  follows("micro_batches", "their number follows, global_batch / (data * micro_batch)",
          "set training.global_batch or plan.micro_batch");
}

void refuse_later_keys(const Node& node) {
  explain_derived_keys(node);
  require_one(node, "context", "context parallelism");
  require_one(node, "expert", "expert parallelism");
  require_one(node, "expert_tensor", "tensor parallelism of experts");
  if (node.choice("context_kind", {"ring", "all_to_all"}, 0) != 0) {
    not_available(node.get("context_kind"), "context_kind all_to_all", "ring");
  }
  if (node.choice("zero_group", {"all", "node"}, 0) != 0) {
    not_available(node.get("zero_group"), "zero_group node (hybrid sharding)", "all");
  }
  if (node.boolean("embedding_as_layer", false)) {
    not_available(node.get("embedding_as_layer"), "embedding_as_layer true",
                  "false, with layers_per_stage as a list where stages should differ");
  }
}

Schedule read_schedule(const Node& node) {
  const std::vector<std::string_view> names = schedule_names();
  return static_cast<Schedule>(
      node.choice("schedule", {names.begin(), names.end()}, static_cast<int>(Schedule::one_f_one_b)));
}

std::vector<std::int64_t> read_layers(const Node& node) {
  std::vector<std::int64_t> layers;
  const Node list = node.get("layers_per_stage");
  if (!list || list.as_text() == "auto") return layers;
  if (list.kind() != Node::Kind::sequence || list.size() == 0) {
    list.error("expected auto, or a list with the number of layers of each stage");
    return layers;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node item = list.at(i);
    const auto count = item.as_integer();
    if (!count || *count < 1 || *count > kMaxRanks) item.error("expected a number of layers, at least 1");
    layers.push_back(count.value_or(1));
  }
  return layers;
}

void read_rank_order(const Node& node, std::array<Axis, kAxes>& order) {
  const Node list = node.get("rank_order");
  if (!list) return;
  const std::vector<std::string> names(kAxisNames.begin(), kAxisNames.end());
  const std::string expected =
      fmt::format("expected a permutation of [{}], fastest-varying first", fmt::join(names, ", "));
  if (list.kind() != Node::Kind::sequence) {
    list.error(expected);
    return;
  }
  std::vector<Axis> axes;
  bool sound = true;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node item = list.at(i);
    const std::string name = item.as_text().value_or("");
    const auto at = std::find(names.begin(), names.end(), name);
    const auto axis = static_cast<Axis>(at - names.begin());
    if (at == names.end()) {
      const std::string near = nearest(name, names);
      item.error(fmt::format("unknown axis {}; {}", shown(name), expected),
                 near.empty() ? "" : fmt::format("did you mean '{}'?", near));
      sound = false;
    } else if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      item.error(fmt::format("axis {} is listed twice; {}", name, expected));
      sound = false;
    } else {
      axes.push_back(axis);
    }
  }
  if (!sound) return;
  if (axes.size() != kAxes) {
    std::vector<std::string> absent;
    for (std::size_t a = 0; a < kAxes; ++a) {
      if (std::find(axes.begin(), axes.end(), static_cast<Axis>(a)) == axes.end()) absent.push_back(names[a]);
    }
    list.error(fmt::format("not listed: {}; {}", fmt::join(absent, ", "), expected));
    return;
  }
  std::copy(axes.begin(), axes.end(), order.begin());
}

}  // namespace

Plan read_plan(const Node& node, const FrameworkProfile& profile) {
  Plan plan;
  plan.tensor = node.integer("tensor", 1, 1, kMaxRanks);
  plan.pipeline = node.integer("pipeline", 1, 1, kMaxRanks);
  refuse_later_keys(node);
  plan.schedule = read_schedule(node);
  plan.chunks = node.integer("chunks", 1, 1, kMaxRanks);
  plan.layers_per_stage = read_layers(node);
  plan.micro_batch = node.integer("micro_batch", 1, 1, kMaxMicroBatch);
  plan.zero = static_cast<int>(node.integer("zero", 0, 0, 3));
  plan.bucket = node.bytes("bucket", profile.bucket);
  if (plan.bucket < Bytes(1)) {
    node.get("bucket").error("a bucket holds at least one byte; 1B sends every gradient on its own");
  }
  plan.overlap_grad_reduce = node.boolean("overlap_grad_reduce", profile.overlap_grad_reduce);
  plan.overlap_param_gather = node.boolean("overlap_param_gather", profile.overlap_param_gather);
  plan.sequence_parallel = node.boolean("sequence_parallel", false);
  plan.recompute = static_cast<Recompute>(node.choice("recompute", {"none", "selective", "full"}, 0));
  read_rank_order(node, plan.rank_order);
  return plan;
}

}  // namespace rehearse::plan::detail
