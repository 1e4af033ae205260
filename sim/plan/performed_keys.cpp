// See performed_keys.h. tests/unit/plan/performed_keys_test.cpp changes every key of the table and looks for it here.
#include "sim/plan/performed_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

template <class Value>
void add(Keys& keys, const char* key, const Value& value) {
  keys.emplace_back(key, fmt::format("{}", value));
}

// Enumerations as the file has them.
template <class Value, std::size_t N>
void add_choice(Keys& keys, const char* key, Value value, const char* const (&names)[N]) {
  keys.emplace_back(key, names[static_cast<std::size_t>(value)]);
}

void add_transformer(Keys& keys, const model::Model& m) {
  add(keys, "model.layers", m.layers);
  add(keys, "model.hidden", m.hidden);
  add(keys, "model.heads", m.heads);
  add(keys, "model.kv_heads", m.kv_heads);
  add(keys, "model.head_dim", m.head_dim);
  add(keys, "model.ffn_hidden", m.ffn_hidden);
  add(keys, "model.vocab", m.vocab);
  add(keys, "model.max_seq_len", m.max_seq_len);
  add_choice(keys, "model.activation", m.activation, {"gelu", "relu", "swiglu"});
  add_choice(keys, "model.norm", m.norm, {"layernorm", "rmsnorm"});
  add_choice(keys, "model.position", m.position, {"learned", "rope"});
  add(keys, "model.tied_embeddings", m.tied_embeddings);
  add(keys, "model.bias", m.bias);
  add_choice(keys, "model.attention", m.attention, {"flash", "unfused"});
}

void add_model(Keys& keys, const model::Model& m) {
  add_choice(keys, "model.family", m.family, {"gpt", "llama", "cnn", "mlp"});
  add(keys, "model.dropout", m.dropout);
  if (m.is_transformer()) return add_transformer(keys, m);
  add_choice(keys, "model.loss", m.loss, {"cross_entropy", "mse"});
  add(keys, "model.widths", fmt::format("[{}]", fmt::join(m.widths, ", ")));
  if (m.family != model::Family::cnn) return;
  add(keys, "model.image", fmt::format("{{channels: {}, size: {}}}", m.image_channels, m.image_size));
  std::string layers;
  for (const model::ConvLayer& c : m.convolutions)
    layers += fmt::format("{}{{channels: {}, kernel: {}, pool: {}}}", layers.empty() ? "" : ", ", c.channels, c.kernel,
                          c.pool);
  add(keys, "model.convolutions", "[" + layers + "]");
}

void add_plan(Keys& keys, const Plan& p) {
  add(keys, "plan.tensor", p.tensor);
  add(keys, "plan.pipeline", p.pipeline);
  add(keys, "plan.context", p.context);
  add(keys, "plan.expert", p.expert);
  add(keys, "plan.schedule", schedule_of(p.schedule).name());
  add(keys, "plan.chunks", p.chunks);
  add(keys, "plan.layers_per_stage", fmt::format("[{}]", fmt::join(p.layers_per_stage, ", ")));
  add(keys, "plan.micro_batch", p.micro_batch);
  add(keys, "plan.zero", p.zero);
  add(keys, "plan.bucket", fmt::format("{}B", p.bucket.count()));
  add(keys, "plan.overlap_grad_reduce", p.overlap_grad_reduce);
  add(keys, "plan.overlap_param_gather", p.overlap_param_gather);
  add(keys, "plan.sequence_parallel", p.sequence_parallel);
  add_choice(keys, "plan.recompute", p.recompute, {"none", "selective", "full"});
  std::string order;
  for (const Axis axis : p.rank_order) order += (order.empty() ? "" : ", ") + std::string(name_of(axis));
  add(keys, "plan.rank_order", "[" + order + "]");
}

void add_training(Keys& keys, const Training& t) {
  static constexpr const char* kPrecisions[] = {"fp32", "bf16", "fp16"};
  add(keys, "training.global_batch", t.global_batch);
  add(keys, "training.seq_len", t.seq_len);
  add_choice(keys, "training.precision", t.precision, kPrecisions);
  add_choice(keys, "training.grad_dtype", t.grad_dtype, kPrecisions);
  add_choice(keys, "training.reduce_dtype", t.reduce_dtype, kPrecisions);
  add_choice(keys, "training.optimizer", t.optimizer, {"adamw", "sgd"});
  add(keys, "training.lr", t.lr);
  add(keys, "training.lr_schedule", t.lr_schedule);
  add(keys, "training.warmup_steps", t.warmup_steps);
  add(keys, "training.betas", fmt::format("[{}, {}]", t.beta1, t.beta2));
  add(keys, "training.eps", t.eps);
  add(keys, "training.weight_decay", t.weight_decay);
  add(keys, "training.momentum", t.momentum);
  add(keys, "training.clip", t.clip);
  add(keys, "training.loss_scale", t.loss_scale);
  add(keys, "training.loss_scale_interval", t.loss_scale_interval);
  add(keys, "training.seed", t.seed);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> performed_keys(const Scenario& scenario) {
  Keys keys;
  add_model(keys, scenario.model);
  add(keys, "cluster.gpus", scenario.cluster.gpus);
  add(keys, "cluster.threads_per_rank", scenario.cluster.threads_per_rank);
  add(keys, "framework", scenario.framework.name);
  add_plan(keys, scenario.plan);
  add_training(keys, scenario.training);
  return keys;
}

}  // namespace rehearse::plan
