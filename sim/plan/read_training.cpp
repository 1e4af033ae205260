// The scenario's `training:` mapping: what one optimizer step is, read by its rows (key_table_training.cpp). Sequence
// length and global batch depend on the model and the plan; where they are not given they stay 0 here and resolve()
// fills them in.
#include <fmt/format.h>

#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

std::string precision_word(Precision precision) {
  return std::string(find_key("training.precision")->values.at(static_cast<std::size_t>(precision)));
}

// What is not in the 8 bits of products is bf16.
Precision stored(Precision precision) {
  return precision == Precision::fp8 || precision == Precision::nvfp4 ? Precision::bf16 : precision;
}

// Gradients are kept and sent in fp32 or in the training precision.
void check_gradient_dtype(const Node& node, const char* key, Precision dtype, Precision precision) {
  if (dtype == Precision::fp32 || dtype == stored(precision)) return;
  node.get(key).error(fmt::format("{} with precision {}: expected fp32{}", precision_word(dtype),
                                  precision_word(precision),
                                  precision == Precision::fp32 ? "" : " or " + precision_word(stored(precision))));
}

}  // namespace

Training read_training(const Node& node, const FrameworkProfile& profile) {
  Training t;
  t.global_batch = t.seq_len = 0;
  read_keys(node, "training.", t, [&](const Key& key) {
    const std::string text = default_of(key, profile);
    return text == "the precision" ? precision_word(stored(t.precision)) : text;  // precision is read before
  });
  check_gradient_dtype(node, "grad_dtype", t.grad_dtype, t.precision);
  if (node.has("base_lr") && !node.has("base_batch"))
    node.get("base_lr").error("needs base_batch, the batch that it went with", "base_batch: 256");
  check_gradient_dtype(node, "reduce_dtype", t.reduce_dtype, t.precision);
  if (t.optimizer == OptimizerKind::muon && !node.has("momentum")) t.momentum = 0.95;
  if (!node.has("fill_uninitialized")) t.fill_uninitialized = t.deterministic && profile.fills_new_tensors;
  if (!node.has("lora_alpha")) t.lora_alpha = static_cast<double>(t.lora_rank);
  for (const auto& [key, given] : {std::pair{"lora_alpha", node.has("lora_alpha")},
                                   {"lora_targets", !(t.lora_qkv && t.lora_proj && t.lora_fc1 && t.lora_fc2)}})
    if (given && !node.has("lora_rank"))
      node.get(key).error("needs lora_rank, the rank of the adapters", "lora_rank: 16");
  return t;
}

}  // namespace rehearse::plan::detail
