#include "sim/run/describe_scenario.h"

#include <fmt/format.h>

#include <filesystem>

#include "sim/account/epoch.h"
#include "sim/lower/stage.h"
#include "sim/plan/keys.h"

namespace rehearse::run {
namespace {

// A list's elements with blanks between; anything else as a file would say it.
std::string result_text(std::string text) {
  if (!text.starts_with('[')) return text;
  std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == ','; });
  return text;
}

// Every key of the table that stands in results, but the sequence length of what reads no sequences.
void describe_keys(const plan::Scenario& scenario, std::map<std::string, std::string>& out) {
  const std::string family = plan::value_text(*plan::find_key("model.family"), scenario).value_or("");
  for (const plan::Key& key : plan::keys()) {
    if (!key.in_result || !key.of_family(family)) continue;
    if (key.path == "training.seq_len" && !scenario.model.reads_text()) continue;
    out[std::string(key.path)] = result_text(plan::value_text(key, scenario).value_or(""));
  }
}

// What is given of section `data`, and what advice on the learning rate needs.
void describe_data(const plan::Scenario& scenario, result::Result& out) {
  const auto text = [&](std::string_view path) {
    return plan::value_text(*plan::find_key(path), scenario).value_or("");
  };
  const plan::Data& data = scenario.data;
  auto& s = out.scenario;
  s["training.lr"] = text("training.lr");
  if (scenario.training.base_batch > 0) s["training.base_batch"] = text("training.base_batch");
  if (scenario.training.base_lr > 0) s["training.base_lr"] = text("training.base_lr");
  if (data.samples > 0)
    for (const char* key : {"data.samples", "data.drop_last"}) s[key] = text(key);
  if (data.epochs > 0) s["data.epochs"] = text("data.epochs");
  if (!data.takes_time()) return;
  for (const char* key : {"data.workers", "data.prefetch", "data.sample_time", "data.sample_bytes"}) s[key] = text(key);
  if (data.to_device > Bytes()) s["data.to_device"] = text("data.to_device");
  if (data.storage_bandwidth > Bandwidth())
    for (const char* key : {"data.storage_bandwidth", "data.storage_of"}) s[key] = text(key);
}

}  // namespace

double peak_of(const cost::Device& device, const plan::Training& t) {
  return device.peak(t.eight_bits() ? DType::e4m3 : t.four_bits() ? DType::e2m1 : lower::dtype_of(t.precision)).per_s();
}

void describe_scenario(const plan::Scenario& scenario, const cluster::Cluster& cluster, const cost::Device& device,
                       result::Result& out) {
  const plan::Plan& p = scenario.plan;
  const plan::Training& t = scenario.training;
  out.scenario_name = scenario.name;
  out.scenario_file = scenario.file;
  out.peak_flops_per_gpu = peak_of(device, t);
  auto& s = out.scenario;
  s["model"] = scenario.model.name;
  s["model.parameters"] = fmt::to_string(model::parameter_count(scenario.model));
  if (t.lora()) {
    s["model.parameters"] = fmt::to_string(model::parameter_count(scenario.model) +
                                           model::adapter_parameter_count(scenario.model, t.adapters()));
    s["model.trainable_parameters"] = fmt::to_string(model::adapter_parameter_count(scenario.model, t.adapters()));
    for (const char* key : {"training.lora_rank", "training.lora_alpha", "training.lora_targets"})
      s[key] = result_text(plan::value_text(*plan::find_key(key), scenario).value_or(""));
  }
  s["cluster.topology"] = cluster.name();
  s["cluster.device"] = device.name;
  if (const cluster::HostSharing host = cluster.host_sharing(); host.cores > 0) {
    s["cluster.cores"] = fmt::to_string(host.cores);
    s["cluster.threads_per_rank"] = fmt::to_string(host.threads_per_rank);
  }
  if (!scenario.jobs.empty()) {
    std::string& others = s["cluster.jobs"];
    for (const plan::JobBeside& job : scenario.jobs) others += (others.empty() ? "" : ", ") + job.name;
  }
  s["framework"] = scenario.framework.name;
  if (!scenario.framework_why.empty()) s["framework.chosen"] = "automatically: " + scenario.framework_why;
  describe_keys(scenario, s);
  if (t.eight_bits())
    for (const char* key : {"training.fp8_recipe", "training.fp8_bf16_layers", "training.fp8_transposes"})
      s[key] = plan::value_text(*plan::find_key(key), scenario).value_or("");
  if (t.fp8_params) s["training.fp8_params"] = "true";
  if (t.moments != plan::MomentsKind::fp32)
    s["training.moments"] = *plan::value_text(*plan::find_key("training.moments"), scenario);
  if (t.packs())
    for (const char* key :
         {"training.documents", "training.document_length", "training.document_sigma", "training.document_lengths"})
      if (const auto text = plan::value_text(*plan::find_key(key), scenario); text && *text != "[]" && *text != "0")
        s[key] = result_text(*text);
  if (t.four_bits()) s["training.fp8_bf16_layers"] = fmt::to_string(t.fp8_bf16_layers);
  if (p.recompute_layers > 0) s["plan.recompute_layers"] = fmt::to_string(p.recompute_layers);
  if (p.offload_optimizer) s["plan.offload_optimizer"] = "true";
  if (p.offload_parameters) s["plan.offload_parameters"] = "true";
  if (p.offload_activations) s["plan.offload_activations"] = "true";
  if (p.offload_layers > 0) s["plan.offload_layers"] = fmt::to_string(p.offload_layers);
  for (const auto& [key, is] : {std::pair{"plan.recompute_latent", p.recompute_latent},
                                {"plan.recompute_norms", p.recompute_norms},
                                {"plan.recompute_expert_activation", p.recompute_expert_activation},
                                {"plan.weigh_in_experts", p.weigh_in_experts},
                                {"plan.async_tensor_parallel", p.async_tensor_parallel},
                                {"training.fp8_dispatch", t.fp8_dispatch},
                                {"training.fp8_activation_input", t.fp8_activation_input},
                                {"training.e5m6_attention_output", t.e5m6_attention_output}})
    if (is) s[key] = "true";
  if (p.compresses_gradients()) {
    s["plan.gradient_compression"] = fmt::format("[{}]", fmt::join(p.gradient_compression, ", "));
    if (p.compresses_by("top_k") || p.compresses_by("random_k"))
      s["plan.gradient_share"] = fmt::to_string(p.gradient_share);
    if (p.compresses_by("power_sgd"))
      for (const char* key : {"plan.gradient_rank", "plan.gradient_start_step", "plan.gradient_min_rate"})
        s[key] = *plan::value_text(*plan::find_key(key), scenario);
    if (p.gradient_warmup_steps > 0) s["plan.gradient_warmup_steps"] = fmt::to_string(p.gradient_warmup_steps);
    if (p.gradient_code(1).quantised()) s["plan.gradient_chunk"] = fmt::to_string(p.gradient_chunk);
  }
  if (p.recompute_every > 1) s["plan.recompute_every"] = fmt::to_string(p.recompute_every);
  s["plan.data"] = fmt::to_string(p.data);
  if (p.served()) {
    for (const char* key : {"plan.servers", "plan.server_devices", "plan.consistency"})
      s[key] = *plan::value_text(*plan::find_key(key), scenario);
    if (p.consistency == plan::Consistency::bounded) s["plan.staleness"] = fmt::to_string(p.staleness);
    if (p.backup_workers > 0) s["plan.backup_workers"] = fmt::to_string(p.backup_workers);
  }
  if (p.steps_apart()) {
    for (const char* key : {"plan.local_steps", "plan.local_group", "plan.outer_optimizer"})
      s[key] = *plan::value_text(*plan::find_key(key), scenario);
    if (p.outer_optimizer == plan::OuterOptimizer::nesterov)
      for (const char* key : {"plan.outer_lr", "plan.outer_momentum"})
        s[key] = *plan::value_text(*plan::find_key(key), scenario);
  }
  if (p.zero > 0 && p.replicas > 1) s["plan.zero_group"] = fmt::to_string(p.data * p.context / p.replicas);
  if (p.expert > 1) s["plan.expert"] = fmt::to_string(p.expert);
  if (p.whole_experts()) s["plan.expert_tensor"] = "1";
  if (scenario.model.routing != model::Routing::uniform)
    s["model.routing"] = *plan::value_text(*plan::find_key("model.routing"), scenario);
  if (scenario.model.routing == model::Routing::zipf)
    s["model.routing_exponent"] = *plan::value_text(*plan::find_key("model.routing_exponent"), scenario);
  if (scenario.model.routing_per != model::RoutingPer::layer)
    s["model.routing_per"] = *plan::value_text(*plan::find_key("model.routing_per"), scenario);
  if (const auto& recorded = scenario.model.recorded_routing) {
    s["model.routing_file"] = std::filesystem::path(scenario.model.routing_file).filename().string();
    s["model.routing_step"] = fmt::to_string(recorded->step());
  }
  if (p.context > 1) s["plan.context_kind"] = *plan::value_text(*plan::find_key("plan.context_kind"), scenario);
  s["plan.micro_batches"] = fmt::to_string(t.micro_batches(p));
  s["plan.bucket_bytes"] = fmt::to_string(p.bucket.count());
  out.epoch = account::epoch_of(scenario);
  out.learning_rate = {t.base_batch, t.base_lr, t.global_batch};
  describe_data(scenario, out);
  for (const std::string& text : scenario.model.notes) out.notes.push_back({"model_file", text});
}

}  // namespace rehearse::run
