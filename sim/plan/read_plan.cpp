// The scenario's `plan:` mapping: how the model is split, read by its rows (key_table.cpp). Sizes that depend on other
// sections (data, layers a stage) are left to resolve().
#include <algorithm>

#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

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

}  // namespace

Plan read_plan(const Node& node, const FrameworkProfile& profile) {
  Plan plan;
  explain_derived_keys(node);
  read_keys(node, "plan.", plan, [&](const Key& key) { return default_of(key, profile); });
  plan.bucket_given = static_cast<bool>(node.get("bucket"));
  if (plan.bucket < Bytes(1)) {
    node.get("bucket").error("a bucket holds at least one byte; 1B sends every gradient on its own");
  }
  return plan;
}

}  // namespace rehearse::plan::detail
