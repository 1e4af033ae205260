// The scenario's `training:` mapping: what one optimizer step is. Sequence length and global batch depend on the model
// and the plan; where they are not given they stay 0 here and resolve() fills them in.
#include <fmt/format.h>

#include "sim/base/text_check.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

using rehearse::detail::shown;

const std::vector<std::string> kPrecisionNames = {"fp32", "bf16", "fp16"};

Precision read_precision(const Node& node) {
  const Node value = node.get("precision");
  if (value.as_text().value_or("").starts_with("fp8")) {
    not_available(value, "precision fp8", fmt::format("{}", fmt::join(kPrecisionNames, ", ")));
    return Precision::bf16;
  }
  return static_cast<Precision>(node.choice("precision", kPrecisionNames, static_cast<int>(Precision::bf16)));
}

// Gradients are kept and sent in fp32 or in the training precision.
Precision read_gradient_dtype(const Node& node, const char* key, Precision precision, bool fp32_default) {
  const Precision fallback = fp32_default ? Precision::fp32 : precision;
  const auto dtype = static_cast<Precision>(node.choice(key, kPrecisionNames, static_cast<int>(fallback)));
  if (dtype != Precision::fp32 && dtype != precision) {
    const std::string& given = kPrecisionNames[static_cast<std::size_t>(dtype)];
    const std::string& trained = kPrecisionNames[static_cast<std::size_t>(precision)];
    node.get(key).error(fmt::format("{} with precision {}: expected fp32{}", given, trained,
                                    precision == Precision::fp32 ? "" : " or " + trained));
  }
  return dtype;
}

OptimizerKind read_optimizer(const Node& node) {
  const std::string name = node.text("optimizer", "adamw");
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "sgd") return OptimizerKind::sgd;
  const std::string near = nearest(name, {"adamw", "sgd"});
  node.get("optimizer")
      .error(fmt::format("optimizer {} is not available yet; available: adamw, sgd", shown(name)),
             near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return OptimizerKind::adamw;
}

void read_betas(const Node& node, Training& training) {
  const Node list = node.get("betas");
  if (!list) return;
  if (list.kind() != Node::Kind::sequence || list.size() != 2) {
    list.error("expected a list of two numbers, for example [0.9, 0.95]");
    return;
  }
  double* const targets[] = {&training.beta1, &training.beta2};
  for (std::size_t i = 0; i < 2; ++i) {
    const Node item = list.at(i);
    const auto beta = item.as_number();
    if (beta && *beta >= 0 && *beta < 1) {
      *targets[i] = *beta;
    } else {
      item.error("expected a number from 0 up to, but without, 1");
    }
  }
}

}  // namespace

Training read_training(const Node& node, const FrameworkProfile& profile) {
  constexpr double kBelowOne = 1 - 1e-12;
  Training t;
  t.global_batch = node.get("global_batch") ? node.integer("global_batch", {}, 1, kMaxGlobalBatch) : 0;
  t.seq_len = node.get("seq_len") ? node.integer("seq_len", {}, 1, kMaxSeqLen) : 0;
  t.precision = read_precision(node);
  t.grad_dtype = read_gradient_dtype(node, "grad_dtype", t.precision, profile.fp32_gradients);
  t.reduce_dtype = read_gradient_dtype(node, "reduce_dtype", t.precision, profile.fp32_gradients);
  t.optimizer = read_optimizer(node);
  t.lr = node.number("lr", t.lr, 0, 1e6);
  t.lr_schedule = node.choice("lr_schedule", {"constant", "cosine"}, 0) == 1 ? "cosine" : "constant";
  t.warmup_steps = node.integer("warmup_steps", 0, 0, 1'000'000'000);
  read_betas(node, t);
  t.eps = node.number("eps", t.eps, 0, 1);
  t.weight_decay = node.number("weight_decay", t.weight_decay, 0, 1e6);
  t.momentum = node.number("momentum", t.momentum, 0, kBelowOne);
  t.clip = node.number("clip", t.clip, 0, 1e12);
  t.loss_scale = node.number("loss_scale", t.loss_scale, 1, 1e12);
  t.loss_scale_interval = node.integer("loss_scale_interval", t.loss_scale_interval, 1, 1'000'000'000);
  t.seed = node.integer("seed", t.seed, 0);
  return t;
}

}  // namespace rehearse::plan::detail
