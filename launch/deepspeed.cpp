// See deepspeed.h.
#include "launch/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/document_settings.h"
#include "sim/base/document.h"
#include "sim/base/text_check.h"
#include "sim/plan/cosine_end.h"

namespace rehearse::launch {
namespace {

using plan::Precision;
using DsJson = nlohmann::ordered_json;

constexpr const char* kDeepspeedProfile = "deepspeed";

std::int64_t bytes_of(Precision precision) {
  return precision == Precision::fp32 ? 4 : 2;
}

const char* dtype_word(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : precision == Precision::fp16 ? "fp16" : "bf16";
}

DsJson ds_zero(Said& said) {
  const plan::Scenario& s = said.scenario();
  const plan::Plan& p = s.plan;
  for (const char* key : {"plan.zero", "plan.zero_group", "plan.overlap_grad_reduce", "plan.reuse_distance"})
    said.said(key);
  DsJson zero = {{"stage", p.zero}, {"overlap_comm", p.overlap_grad_reduce}, {"contiguous_gradients", true}};
  if (p.bucket_given && p.bucket.count() % bytes_of(s.training.reduce_dtype) == 0) {
    said.said("plan.bucket");
    zero["reduce_bucket_size"] = p.bucket.count() / bytes_of(s.training.reduce_dtype);
  }
  if (p.zero == 3) zero["stage3_max_reuse_distance"] = p.reuse_distance;
  if (p.zero > 0 && p.replicas > 1) {
    if (p.zero == 3)
      zero["mics_shard_size"] = p.data / p.replicas;
    else
      said.left_out("plan.zero_group", fmt::format("{} groups: MiCS is of ZeRO-3 alone", p.replicas));
  }
  // runtime/zero/config.py, offload_config.py: of stages 1 to 3, and parameters of stage 3.
  said.said("plan.offload_optimizer");
  said.said("plan.offload_parameters");
  const DsJson on_hosts = {{"device", "cpu"}, {"pin_memory", true}};
  if (p.offload_optimizer && p.zero > 0) zero["offload_optimizer"] = on_hosts;
  if (p.offload_optimizer && p.zero == 0)
    said.left_out("plan.offload_optimizer", "true: offload_optimizer is of ZeRO 1 to 3");
  if (p.offload_parameters) zero["offload_param"] = on_hosts;
  return zero;
}

void ds_precision(Said& said, DsJson& config) {
  const plan::Training& t = said.scenario().training;
  for (const char* key : {"training.precision", "training.grad_dtype", "training.reduce_dtype", "training.loss_scale",
                          "training.loss_scale_interval"})
    said.said(key);
  if (t.narrow())
    said.left_out("training.precision",
                  fmt::format("{}: 8 and 4 bits are the model's own; bf16 here", said.value("training.precision")));
  if (t.precision == Precision::fp16) {
    const double power = std::log2(t.loss_scale);
    config["fp16"] = {{"enabled", true}, {"loss_scale", 0}, {"loss_scale_window", t.loss_scale_interval}};
    if (power == std::floor(power))
      config["fp16"]["initial_scale_power"] = static_cast<int>(power);
    else
      said.left_out("training.loss_scale", "no power of two");
  } else if (t.precision != Precision::fp32) {
    config["bf16"] = {{"enabled", true}};
  }
  config["data_types"] = {{"grad_accum_dtype", dtype_word(t.grad_dtype)}};
  config["communication_data_type"] = dtype_word(t.reduce_dtype);
}

void ds_optimizer(Said& said, DsJson& config) {
  const plan::Training& t = said.scenario().training;
  for (const char* key : {"training.optimizer", "training.lr", "training.betas", "training.eps",
                          "training.weight_decay", "training.momentum", "training.clip", "training.warmup_steps"})
    said.said(key);
  config["gradient_clipping"] = t.clip;
  if (t.optimizer == plan::OptimizerKind::adafactor)
    said.left_out("training.optimizer", "adafactor: an optimizer of the training script, not of DeepSpeed");
  if (t.optimizer == plan::OptimizerKind::muon) said.left_out("training.optimizer", "muon: AdamW of all parameters");
  DsJson params = {{"lr", t.lr}};
  if (t.optimizer == plan::OptimizerKind::sgd) {
    params["momentum"] = t.momentum;
  } else {
    params["betas"] = {t.beta1, t.beta2};
    params["eps"] = t.eps;
  }
  params["weight_decay"] = t.weight_decay;
  const char* type = t.optimizer == plan::OptimizerKind::sgd    ? "SGD"
                     : t.optimizer == plan::OptimizerKind::lamb ? "Lamb"
                                                                : "AdamW";
  config["optimizer"] = {{"type", type}, {"params", params}};
  // Without its type the warm-up is logarithmic (runtime/lr_schedules.py, WarmupLR).
  if (t.warmup_steps > 0)
    config["scheduler"] = {
        {"type", "WarmupLR"},
        {"params", {{"warmup_max_lr", t.lr}, {"warmup_num_steps", t.warmup_steps}, {"warmup_type", "linear"}}}};
}

}  // namespace

Exported export_deepspeed(const plan::Scenario& s, std::int64_t gpus_a_node) {
  Said said(s, kDeepspeedProfile);
  const plan::Plan& p = s.plan;
  DsJson config;
  config["train_batch_size"] = s.training.global_batch;
  config["train_micro_batch_size_per_gpu"] = p.micro_batch;
  config["gradient_accumulation_steps"] = s.training.micro_batches(p);
  for (const char* key : {"training.global_batch", "plan.micro_batch"}) said.said(key);
  ds_precision(said, config);
  config["zero_optimization"] = ds_zero(said);
  said.said("plan.offload_activations");
  if (p.offload_activations) config["activation_checkpointing"] = {{"cpu_checkpointing", true}};
  said.said("plan.tensor");
  const bool tensor = p.tensor > 1 && p.zero <= 2;
  if (tensor) config["tensor_parallel"] = {{"autotp_size", p.tensor}};
  if (p.tensor > 1 && !tensor)
    said.left_out("plan.tensor", fmt::format("{}: automatic tensor parallelism takes ZeRO up to 2", p.tensor));
  ds_optimizer(said, config);
  Exported out;
  std::string environment = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  for (const std::string& line : nccl_variables(said)) environment += " " + line;
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  // Ranks that no field describes: the file's batch is that of the replicas.
  if (p.pipeline > 1 || p.context > 1 || (p.tensor > 1 && !tensor))
    said.left_out("cluster.gpus", fmt::format("{}: the file knows replicas alone, {} of them", s.cluster.gpus, p.data));
  out.left_out = said.finish();
  out.text = config.dump(2) + "\n";
  out.run = {fmt::format("{} deepspeed --num_nodes {} --num_gpus {} train.py --deepspeed --deepspeed_config FILE",
                         environment, nodes.nodes, nodes.a_node)};
  out.notes = {"for DeepSpeed 0.16.4 and later; the model and its data are those of train.py"};
  return out;
}

namespace {

// `autos`: fields whose value is left to the program that reads the file, such as transformers' Trainer.
void take_ds_precision(Taken& taken, const std::vector<std::string>& autos) {
  const auto open = [&](const char* key) { return std::find(autos.begin(), autos.end(), key) != autos.end(); };
  bool half = taken.flag("fp16.enabled"), brain = taken.flag("bf16.enabled") || taken.flag("bfloat16.enabled");
  const Setting* at = taken.find(half                        ? "fp16.enabled"
                                 : taken.has("bf16.enabled") ? "bf16.enabled"
                                                             : "bfloat16.enabled");
  if (half && brain) return taken.error(*at, "fp16 and bf16 are both enabled");
  const bool open_brain = open("bf16.enabled") || open("bfloat16.enabled"), open_half = open("fp16.enabled");
  if (!half && !brain && (open_brain || open_half)) {
    brain = open_brain;
    half = !open_brain;
    at = nullptr;
    taken.assume(fmt::format("{}, since {} auto: the program decides (training.precision)", half ? "fp16" : "bf16",
                             open_brain && open_half ? "bf16.enabled and fp16.enabled are"
                             : half                  ? "fp16.enabled is"
                                                     : "bf16.enabled is"));
  } else if (!half && !brain) {
    taken.assume("fp32, since neither bf16 nor fp16 is enabled");
  }
  taken.put("training.precision", half ? "fp16" : brain ? "bf16" : "fp32", at);
  if (half) {
    if (const auto power = taken.integer("fp16.initial_scale_power"); power && *power >= 0 && *power <= 60)
      taken.put("training.loss_scale", fmt::format("{}", std::int64_t{1} << *power),
                taken.find("fp16.initial_scale_power"));
    taken.row({"training.loss_scale_interval", "fp16.loss_scale_window"});
    taken.find("fp16.loss_scale");
  }
  const std::string narrow = half ? "fp16" : brain ? "bf16" : "fp32";
  for (const auto& [ours, theirs] : {std::pair{"training.grad_dtype", "data_types.grad_accum_dtype"},
                                     {"training.reduce_dtype", "communication_data_type"}}) {
    const auto word = taken.text(theirs);
    if (!word) continue;
    const std::string dtype = *word == "fp32" || *word == "float32"     ? "fp32"
                              : *word == "bfp16" || *word == "bfloat16" ? "bf16"
                                                                        : *word;
    if (dtype == "fp32" || dtype == narrow)
      taken.put(ours, dtype, taken.find(theirs));
    else
      taken.error(*taken.find(theirs), fmt::format("expected fp32 or {}, found {}", narrow, one_line(*word)));
  }
}

void take_ds_zero(Taken& taken) {
  taken.row({"plan.zero", "zero_optimization.stage", Mapped::integer, "0"});
  if (taken.has("zero_optimization.overlap_comm"))
    taken.row({"plan.overlap_grad_reduce", "zero_optimization.overlap_comm", Mapped::flag});
  if (const auto elements = taken.integer("zero_optimization.reduce_bucket_size");
      elements && *elements > 0 && *elements < 1'000'000'000'000) {
    // In elements; sent in the communication type, which is the precision unless it is given.
    const std::string sent = taken.value_of("training.reduce_dtype");
    const bool full = sent.empty() ? taken.value_of("training.precision") == "fp32" : sent == "fp32";
    taken.put("plan.bucket", fmt::format("{}B", *elements * (full ? 4 : 2)),
              taken.find("zero_optimization.reduce_bucket_size"));
  }
  if (taken.value_of("plan.zero") == "3")
    taken.row({"plan.reuse_distance", "zero_optimization.stage3_max_reuse_distance"});
  if (const auto group = taken.integer("zero_optimization.mics_shard_size"); group && *group > 0)
    taken.put("plan.zero_group", fmt::format("{}", *group), taken.find("zero_optimization.mics_shard_size"));
  taken.find("zero_optimization.contiguous_gradients");
}

// Whether what `part` holds lies in the memory of hosts; the older flag is of DeepSpeed before 0.3.16.
bool ds_on_hosts(Taken& taken, const std::string& part, const char* older) {
  const std::string section = "zero_optimization." + part, device = taken.text(section + ".device").value_or("none");
  const Setting* at = taken.find(section + ".device");
  for (const char* key : {"pin_memory", "buffer_count", "buffer_size", "max_in_cpu", "nvme_path", "pipeline_read",
                          "pipeline_write", "fast_init"})
    taken.find(section + "." + key);
  if (device != "none" && device != "cpu" && device != "nvme") {
    taken.error(*at, fmt::format("{} is not known", detail::shown(device)), "none, cpu or nvme");
    return false;
  }
  if (device == "nvme") taken.assume(section + " in the memory of hosts, not on their NVMe drives");
  if (const auto share = taken.number(section + ".ratio"); share && *share < 1)
    taken.assume(fmt::format("all of {} on hosts, not {} of it", section, *share));
  return device != "none" || taken.flag(std::string("zero_optimization.") + older);
}

void take_ds_offload(Taken& taken) {
  const bool optimizer = ds_on_hosts(taken, "offload_optimizer", "cpu_offload"),
             parameters = ds_on_hosts(taken, "offload_param", "cpu_offload_params");
  const auto at = [&](const char* part, const char* older) {
    const Setting* device = taken.find(fmt::format("zero_optimization.{}.device", part));
    return device != nullptr ? device : taken.find(std::string("zero_optimization.") + older);
  };
  const std::string stage = taken.value_of("plan.zero");
  if (optimizer && stage == "0") taken.ignore("zero_optimization.offload_optimizer: it is of ZeRO 1 to 3");
  if (optimizer && stage != "0") taken.put("plan.offload_optimizer", "true", at("offload_optimizer", "cpu_offload"));
  if (parameters && stage != "3")
    taken.ignore("zero_optimization.offload_param: it is of ZeRO-3");
  else if (parameters && !optimizer)
    taken.ignore(
        "zero_optimization.offload_param: parameters on hosts are updated there (offload_optimizer), or no "
        "key has them");
  else if (parameters)
    taken.put("plan.offload_parameters", "true", at("offload_param", "cpu_offload_params"));
  if (!taken.flag("activation_checkpointing.cpu_checkpointing")) return;
  const Setting* kept = taken.find("activation_checkpointing.cpu_checkpointing");
  taken.put("plan.recompute", "full", kept);
  taken.put("plan.offload_activations", "true", kept);
  taken.assume("layers computed again in backward: cpu_checkpointing is of their inputs");
}

// runtime/lr_schedules.py: a warm-up is logarithmic and a cosine ends at 0.0001 of the rate where nothing says
// otherwise.
void take_ds_schedule(Taken& taken) {
  taken.row({"training.warmup_steps", "scheduler.params.warmup_num_steps", Mapped::integer});
  taken.find("scheduler.params.warmup_max_lr");
  const auto rise = taken.text("scheduler.params.warmup_type");
  if (taken.given("training.warmup_steps") && rise.value_or("log") != "linear")
    taken.assume(fmt::format("a linear warm-up, not scheduler.params.warmup_type {}",
                             rise ? one_line(*rise) : "log, DeepSpeed's default"));
  if (taken.text("scheduler.type").value_or("") != "WarmupCosineLR") return;
  taken.put("training.lr_schedule", "cosine", taken.find("scheduler.type"));
  constexpr double kUsualEnd = 1e-4;
  const auto end = taken.number("scheduler.params.cos_min_ratio");
  if (end.value_or(kUsualEnd) != plan::kCosineEnd)
    taken.assume(
        fmt::format("a cosine that ends at {} of the learning rate, not at scheduler.params.cos_min_ratio {}{}",
                    plan::kCosineEnd, end.value_or(kUsualEnd), end ? "" : ", DeepSpeed's default"));
}

constexpr std::string_view kAdams[] = {"adam", "adamw", "fusedadam", "deepspeedcpuadam", "cpuadam"};

void take_ds_optimizer(Taken& taken) {
  taken.row({"training.clip", "gradient_clipping", Mapped::number});
  if (const auto type = taken.text("optimizer.type")) {
    const Setting* at = taken.find("optimizer.type");
    std::string name = *type;  // in lower case
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool sgd = name == "sgd", lamb = name.ends_with("lamb"), muon = name == "muon";
    if (name.starts_with("onebit") || name.starts_with("zeroone"))
      taken.not_modelled(fmt::format("optimizer.type {}: gradients in few bits (plan.gradient_compression has others)",
                                     one_line(*type)));
    else if (!sgd && !lamb && !muon && std::find(std::begin(kAdams), std::end(kAdams), name) == std::end(kAdams))
      taken.assume(fmt::format("adamw, not {}, which no key has", one_line(*type)));
    taken.put("training.optimizer", sgd ? "sgd" : lamb ? "lamb" : muon ? "muon" : "adamw", at);
    if (sgd) taken.row({"training.momentum", "optimizer.params.momentum", Mapped::number});
  }
  taken.row({"training.lr", "optimizer.params.lr", Mapped::number});
  taken.row({"training.eps", "optimizer.params.eps", Mapped::number});
  taken.row({"training.weight_decay", "optimizer.params.weight_decay", Mapped::number});
  if (const Setting* betas = taken.find("optimizer.params.betas"); betas != nullptr) {
    if (betas->values.size() == 2 && !betas->values[0].empty() &&
        (betas->values[0] + betas->values[1]).find_first_not_of("0123456789.eE-+") == std::string::npos)
      taken.put("training.betas", fmt::format("[{}, {}]", betas->values[0], betas->values[1]), betas);
    else
      taken.error(*betas, "expected two numbers");
  }
  take_ds_schedule(taken);
}

// train_batch_size = micro-batch x accumulation x replicas: the replicas, if the file says the rest.
void take_ds_batch(Taken& taken, const ImportHints& hints) {
  const auto all = taken.integer("train_batch_size"), micro = taken.integer("train_micro_batch_size_per_gpu");
  const auto steps = taken.integer("gradient_accumulation_steps"),
             tensor = taken.integer("tensor_parallel.autotp_size");
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                          "tensor_parallel.autotp_size"})
    if (const auto value = taken.integer(key); value && (*value < 1 || *value > 1'000'000'000))
      return taken.error(*taken.find(key), fmt::format("expected 1 to 1,000,000,000, found {}", *value));
  const std::int64_t split = tensor.value_or(1);
  if (tensor) taken.put("plan.tensor", fmt::format("{}", *tensor), taken.find("tensor_parallel.autotp_size"));
  if (!micro && !all) taken.assume("a micro-batch of 1: the file gives no batch");
  std::int64_t replicas = hints.gpus > 0 ? std::max<std::int64_t>(hints.gpus / split, 1) : 0;
  const double product = static_cast<double>(micro.value_or(1)) * static_cast<double>(steps.value_or(1));
  if (replicas == 0 && all && micro && steps) {
    const std::int64_t one = product > 1e9 ? 0 : *micro * *steps;
    if (one == 0 || *all % one != 0)
      return taken.error(*taken.find("train_batch_size"),
                         fmt::format("{} is no multiple of train_micro_batch_size_per_gpu {} x "
                                     "gradient_accumulation_steps {}",
                                     *all, *micro, *steps));
    replicas = *all / one;
    if (static_cast<double>(replicas) * static_cast<double>(split) > 1e6)
      return taken.error(*taken.find("train_batch_size"),
                         fmt::format("makes {} replicas, expected at most 1,000,000", replicas));
    taken.put("cluster.gpus", fmt::format("{}", replicas * split), taken.find("train_batch_size"));
  }
  if (micro) taken.put("plan.micro_batch", fmt::format("{}", *micro), taken.find("train_micro_batch_size_per_gpu"));
  if (!micro && all) {
    // Without gradient_accumulation_steps there is one micro-batch (DeepSpeed runtime/config.py,
    // _set_batch_related_parameters); of replicas that nothing counts there is one (Taken::finish).
    const double parts = product * static_cast<double>(std::max<std::int64_t>(replicas, 1));
    if (parts > 1e9 || *all % static_cast<std::int64_t>(parts) != 0)
      return taken.error(*taken.find("train_batch_size"),
                         fmt::format("{} is no multiple of gradient_accumulation_steps {} x {} replicas", *all,
                                     steps.value_or(1), std::max<std::int64_t>(replicas, 1)),
                         "--gpus says how many ranks there are");
    taken.put("plan.micro_batch", fmt::format("{}", *all / static_cast<std::int64_t>(parts)),
              taken.find(steps ? "gradient_accumulation_steps" : "train_batch_size"));
  }
  if (all)
    taken.put("training.global_batch", fmt::format("{}", *all), taken.find("train_batch_size"));
  else if (micro && steps && product * static_cast<double>(std::max<std::int64_t>(replicas, 1)) <= 1e9)
    taken.put("training.global_batch", fmt::format("{}", *micro * *steps * std::max<std::int64_t>(replicas, 1)),
              taken.find("gradient_accumulation_steps"));
  if (all && micro && steps && product * static_cast<double>(replicas) != static_cast<double>(*all))
    taken.error(*taken.find("train_batch_size"),
                fmt::format("{} is not {} x {} x {} replicas", *all, *micro, *steps, replicas),
                "--gpus over tensor_parallel.autotp_size are the replicas");
}

}  // namespace

void take_deepspeed_of_today(Taken& taken, const ImportHints& hints) {
  const std::string family = preset_text(hints, "family");
  const bool decoder = family == "gpt" || family == "llama" || family == "moe";
  // transformers 4.48 and later, modeling_utils.py: sdpa where the model has it; eager with capped scores, with sinks,
  // with slopes by distance and in T5, whose bias of positions is added to the scores.
  const bool eager = !preset_text(hints, "attention_softcap").empty() ||
                     preset_text(hints, "attention_sinks") == "true" || preset_text(hints, "position") == "alibi";
  if ((decoder || family == "bert" || family == "vit") && !eager) {
    taken.put_over("model.attention", "sdpa_flash", nullptr);
    taken.assume(
        "model.attention sdpa_flash: what transformers takes by default today, not the unfused attention of framework "
        "deepspeed");
  } else if (family != "cnn" && family != "mlp" && family != "custom") {
    taken.assume("attention as framework deepspeed has it, unfused (model.attention)");
  }
  if (family == "llama" || family == "moe") {
    taken.put_over("model.dropout", "0", nullptr);
    taken.assume("model.dropout 0, as such models have it in transformers, not 0.1 of framework deepspeed");
  }
  taken.assume(
      "the rest of framework deepspeed is DeepSpeed 0.6 of 2022 under Megatron-LM's kernels: its launch cost, fused "
      "GELU, buckets and order of gathers; later versions, whose files are the same, may launch and overlap otherwise");
}

Imported import_deepspeed(const std::string& file, const std::string& text, const ImportHints& hints) {
  std::vector<std::string> autos;
  Taken taken(file, json_settings(file, text, autos), "");
  for (const std::string& key : autos) taken.ignore(one_line(key) + " auto, which another program fills in");
  take_ds_precision(taken, autos);
  take_ds_zero(taken);
  take_ds_offload(taken);
  take_ds_optimizer(taken);
  take_ds_batch(taken, hints);
  take_deepspeed_of_today(taken, hints);
  return taken.finish("deepspeed", hints, kDeepspeedProfile);
}

}  // namespace rehearse::launch
