// See accelerate.h. ShardingStrategy of FSDP1: FULL_SHARD is ZeRO-3, SHARD_GRAD_OP ZeRO-2, NO_SHARD replicas,
// HYBRID_SHARD ZeRO-3 within a node and replicas over nodes, HYBRID_SHARD_ZERO2 the same with ZeRO-2
// (torch/distributed/fsdp/api.py).
#include "launch/accelerate.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/document_settings.h"
#include "sim/base/text_check.h"

namespace rehearse::launch {
namespace {

using plan::Precision;

struct Strategy {
  const char* name;
  int zero;
  bool hybrid;
};
constexpr Strategy kStrategies[] = {{"FULL_SHARD", 3, false},
                                    {"SHARD_GRAD_OP", 2, false},
                                    {"NO_SHARD", 0, false},
                                    {"HYBRID_SHARD", 3, true},
                                    {"HYBRID_SHARD_ZERO2", 2, true}};
constexpr const char* kAccelerateProfile = "accelerate";

const char* accelerate_precision(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "no";
    case Precision::fp16:
      return "fp16";
    case Precision::fp8:
    case Precision::nvfp4:
      return "fp8";
    case Precision::bf16:
      break;
  }
  return "bf16";
}

// What FSDP of Accelerate reduces gradients in.
Precision reduction_of(Precision precision) {
  return precision == Precision::fp32 || precision == Precision::fp16 ? precision : Precision::bf16;
}

}  // namespace

namespace {

constexpr const char* kSecondProfile = "torch-fsdp2";

// Of FSDP1, which is what the profile accelerate stands for.
std::string first_fsdp(Said& said, std::int64_t gpus_a_node) {
  const plan::Plan& p = said.scenario().plan;
  const bool hybrid = p.replicas > 1;
  const auto found = std::find_if(std::begin(kStrategies), std::end(kStrategies), [&](const Strategy& one) {
    return one.zero == std::max(p.zero, 2) && one.hybrid == hybrid;
  });
  if (p.zero == 1) said.left_out("plan.zero", "1: FSDP that keeps what it gathered is ZeRO-2");
  if (hybrid && p.data / p.replicas != gpus_a_node)
    said.left_out("plan.zero_group", fmt::format("{}: {} shards within a node", p.data / p.replicas, found->name));
  const bool broadcast = said.scenario().training.first_weights == plan::FirstWeights::broadcast;
  return fmt::format(
      "  fsdp_version: 1\n  fsdp_sharding_strategy: {}\n  fsdp_backward_prefetch: NO_PREFETCH\n"
      "  fsdp_use_orig_params: true\n  fsdp_sync_module_states: {}\n",
      found->name, broadcast);
}

// utils/dataclasses.py, set_mixed_precision: parameters and reductions are of one type.
void say_reduction(Said& said) {
  const plan::Training& t = said.scenario().training;
  said.said("training.reduce_dtype");
  if (t.reduce_dtype != reduction_of(t.precision))
    said.left_out("training.reduce_dtype",
                  said.value("training.reduce_dtype") + ": Accelerate reduces in the type of mixed_precision");
}

std::string second_fsdp(Said& said) {
  const plan::Scenario& s = said.scenario();
  if (s.plan.zero == 1) said.left_out("plan.zero", "1: FSDP2 that keeps what it gathered is ZeRO-2");
  return fmt::format("  fsdp_version: 2\n  fsdp_reshard_after_forward: {}\n", s.plan.zero == 3);
}

}  // namespace

Exported export_accelerate(const plan::Scenario& s, std::int64_t gpus_a_node) {
  const plan::Plan& p = s.plan;
  const bool sharded = p.zero > 0, axes = p.tensor > 1 || p.context > 1;
  // Without a framework of the scenario's own FSDP is the second one; whole replicas are DistributedDataParallel's.
  const bool first = s.framework.name == kAccelerateProfile && s.framework_why.empty() && !axes;
  Said said(s, first || (!sharded && !axes) ? kAccelerateProfile : kSecondProfile);
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  for (const char* key : {"plan.zero", "plan.zero_group", "plan.recompute", "training.precision", "plan.context",
                          "plan.tensor", "plan.offload_optimizer", "plan.offload_parameters"})
    said.said(key);
  const bool mesh = axes || (sharded && p.replicas > 1 && !first);
  std::string text = fmt::format(
      "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nmixed_precision: '{}'\nnum_machines: {}\n"
      "num_processes: {}\nmachine_rank: 0\nmain_process_ip: HOST\nmain_process_port: 29500\nrdzv_backend: static\n",
      sharded || mesh ? "FSDP" : "MULTI_GPU", accelerate_precision(s.training.precision), nodes.nodes, s.cluster.gpus);
  if (s.training.precision == Precision::nvfp4) said.left_out("training.precision", "nvfp4: fp8 is what there is");
  if (sharded || mesh) {
    say_reduction(said);
    text += "fsdp_config:\n" + (first ? first_fsdp(said, gpus_a_node) : second_fsdp(said));
    text += "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
    // Rank 0 alone loads the model, and the others get it from there.
    text += fmt::format("  fsdp_cpu_ram_efficient_loading: {}\n",
                        s.training.first_weights == plan::FirstWeights::broadcast);
    said.said("training.first_weights");
    text += fmt::format("  fsdp_activation_checkpointing: {}\n", p.recompute == plan::Recompute::full);
    text += fmt::format("  fsdp_offload_params: {}\n", p.offload_parameters);
  } else if (p.recompute == plan::Recompute::full) {
    said.left_out("plan.recompute", "full: without FSDP the model's own gradient_checkpointing");
  }
  if (p.recompute != plan::Recompute::none && p.recompute != plan::Recompute::full)
    said.left_out("plan.recompute", said.value("plan.recompute") + ": whole layers or none");
  if (p.offload_optimizer && !p.offload_parameters)
    said.left_out("plan.offload_optimizer", "true: fsdp_offload_params is of parameters too (plan.offload_parameters)");
  if (mesh) {
    const std::int64_t replicas = p.zero == 0 ? p.data : p.replicas;
    text += fmt::format(
        "parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n  parallelism_config_dp_shard_size: {}\n"
        "  parallelism_config_tp_size: {}\n  parallelism_config_cp_size: {}\n",
        replicas, p.data / replicas, p.tensor, p.context);
    if (p.zero == 0) said.left_out("plan.zero", "0: FSDP2 shards over what is no replica");
  }
  Exported out;
  std::string environment = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  for (const std::string& line : nccl_variables(said)) environment += " " + line;
  out.run = {environment + " accelerate launch --config_file FILE --machine_rank RANK --main_process_ip HOST train.py"};
  if (p.pipeline > 1) said.left_out("cluster.gpus", fmt::format("{}: stages are no axis of the file", s.cluster.gpus));
  out.left_out = said.finish();
  out.text = "# " + one_line(s.name) + "\n# Made by rehearse export --to accelerate, for Accelerate 1.10 and later.\n";
  if (!out.left_out.empty()) out.text += "# Not said here, for lack of a field:\n";
  for (const LeftOut& one : out.left_out) out.text += fmt::format("#   {}: {}\n", one.key, one_line(one.why));
  out.text += text;
  return out;
}

namespace {

// Weights come from rank 0 where either key is true; FSDP2 has no sync_module_states, it goes by the other alone.
void take_first_weights(Taken& taken, bool second) {
  const char* efficient = "fsdp_config.fsdp_cpu_ram_efficient_loading";
  const char* from = nullptr;
  bool broadcast = false;
  for (const char* key : {"fsdp_config.fsdp_sync_module_states", efficient}) {
    if (!taken.has(key) || (second && key != efficient)) continue;
    const bool is = taken.flag(key);
    if (from == nullptr || is) from = key;
    broadcast = broadcast || is;
  }
  if (from != nullptr) taken.put("training.first_weights", broadcast ? "broadcast" : "seeded", taken.find(from));
}

void take_fsdp(Taken& taken) {
  const auto version = taken.integer("fsdp_config.fsdp_version");
  const bool again = taken.has("fsdp_config.fsdp_reshard_after_forward") && version.value_or(1) == 2;
  if (again) {
    taken.put("plan.zero", taken.flag("fsdp_config.fsdp_reshard_after_forward") ? "3" : "2",
              taken.find("fsdp_config.fsdp_reshard_after_forward"));
  } else if (const auto name = taken.text("fsdp_config.fsdp_sharding_strategy")) {
    const Setting* at = taken.find("fsdp_config.fsdp_sharding_strategy");
    const Strategy* found = nullptr;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::size(kStrategies); ++i) {
      names.emplace_back(kStrategies[i].name);
      // Files of Accelerate before 0.23 have the number, from 1 on.
      if (*name == kStrategies[i].name || *name == fmt::format("{}", i + 1)) found = &kStrategies[i];
    }
    if (found == nullptr) {
      const std::string near = nearest(*name, names);
      return taken.error(*at, fmt::format("{} is not known", detail::shown(*name)),
                         near.empty() ? "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2"
                                      : fmt::format("did you mean '{}'?", near));
    }
    taken.put("plan.zero", fmt::format("{}", found->zero), at);
    if (found->hybrid) taken.put("plan.zero_group", "node", at);
  } else {
    taken.put("plan.zero", "3", taken.find("distributed_type"));
    taken.assume("FULL_SHARD, Accelerate's default");
  }
  taken.put("plan.recompute", taken.flag("fsdp_config.fsdp_activation_checkpointing") ? "full" : "none",
            taken.find("fsdp_config.fsdp_activation_checkpointing"));
  take_first_weights(taken, version.value_or(1) == 2);
  if (taken.flag("fsdp_config.fsdp_offload_params")) {
    const Setting* from = taken.find("fsdp_config.fsdp_offload_params");
    if (taken.value_of("plan.zero") == "3") {
      taken.put("plan.offload_optimizer", "true", from);
      taken.put("plan.offload_parameters", "true", from);
    } else if (taken.value_of("plan.zero") == "2") {
      taken.put("plan.offload_optimizer", "true", from);
      taken.assume(
          "parameters on devices: fsdp_offload_params holds them on hosts, which plan.offload_parameters has "
          "of ZeRO-3 alone");
    }
  }
  // What version 2 reduces in, utils/dataclasses.py, set_mixed_precision; of version 1 it is the profile's.
  const std::string precision = taken.value_of("training.precision");
  if (version.value_or(1) == 2 && precision != "fp32")
    taken.put("training.reduce_dtype", precision == "fp16" ? "fp16" : "bf16", taken.find("mixed_precision"));
  for (const char* key : {"offload_params", "version", "auto_wrap_policy", "backward_prefetch", "use_orig_params"})
    taken.find(fmt::format("fsdp_config.fsdp_{}", key));
}

void take_deepspeed_offload(Taken& taken) {
  const auto away = [&](const char* part) {
    const std::string key = fmt::format("deepspeed_config.offload_{}_device", part);
    const std::string device = taken.text(key).value_or("none");
    if (device == "nvme") taken.assume(key + " cpu, not nvme");
    return device == "cpu" || device == "nvme" ? taken.find(key) : nullptr;
  };
  const Setting *optimizer = away("optimizer"), *parameters = away("param");
  const std::string stage = taken.value_of("plan.zero");
  if (optimizer != nullptr && stage != "0") taken.put("plan.offload_optimizer", "true", optimizer);
  if (parameters != nullptr && optimizer != nullptr && stage == "3")
    taken.put("plan.offload_parameters", "true", parameters);
  else if (parameters != nullptr)
    taken.ignore("deepspeed_config.offload_param_device: of ZeRO-3 with offload_optimizer_device alone");
}

void take_mesh(Taken& taken) {
  const std::string prefix = "parallelism_config.parallelism_config_";
  for (const auto& [key, ours] : {std::pair{"tp_size", "plan.tensor"}, {"cp_size", "plan.context"}})
    if (const auto size = taken.integer(prefix + key))
      taken.put(ours, fmt::format("{}", *size), taken.find(prefix + key));
  const auto replicas = taken.integer(prefix + "dp_replicate_size"), shard = taken.integer(prefix + "dp_shard_size");
  const auto context = taken.integer(prefix + "cp_size");
  if (replicas && *replicas > 1 && shard && *shard >= 1 && *shard <= 1'000'000 && context.value_or(1) >= 1 &&
      context.value_or(1) <= 1'000'000) {
    if (*shard * context.value_or(1) > 1)
      taken.put("plan.zero_group", fmt::format("{}", *shard * context.value_or(1)),
                taken.find(prefix + "dp_shard_size"));
    else
      taken.put("plan.zero", "0", taken.find(prefix + "dp_shard_size"));
  }
}

}  // namespace

Imported import_accelerate(const std::string& file, const std::string& text, const ImportHints& hints) {
  Taken taken(file, yaml_settings(file, text), "");
  const std::string type = taken.text("distributed_type").value_or("");
  const Setting* at = taken.find("distributed_type");
  const std::string precision = taken.text("mixed_precision").value_or("no");
  taken.row({"training.precision",
             "mixed_precision",
             Mapped::word,
             "fp32",
             {{"fp32", "no"}, {"fp32", "false"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {"fp8", "fp8"}}});
  const char* profile = kAccelerateProfile;
  if (type == "FSDP") {
    take_fsdp(taken);
    if (taken.integer("fsdp_config.fsdp_version").value_or(1) == 2) profile = kSecondProfile;
  } else if (type == "DEEPSPEED") {
    profile = "deepspeed";
    taken.row({"plan.zero", "deepspeed_config.zero_stage", Mapped::integer, "2"});
    taken.row({"training.clip", "deepspeed_config.gradient_clipping", Mapped::number});
    take_deepspeed_offload(taken);
    take_deepspeed_of_today(taken, hints);
    if (taken.has("deepspeed_config.deepspeed_config_file")) {
      taken.find("deepspeed_config.deepspeed_config_file");
      taken.assume("nothing of deepspeed_config_file: import that file, --gpus says how many ranks there are");
    }
    if (const auto steps = taken.integer("deepspeed_config.gradient_accumulation_steps"); steps && *steps > 1)
      taken.assume(fmt::format("one micro-batch a step: {} of them times a batch that the file does not have", *steps));
  } else if (type == "MULTI_GPU" || type == "NO") {
    taken.put("plan.zero", "0", at);
  } else if (at != nullptr) {
    taken.error(*at, fmt::format("{} is not available", detail::shown(type)), "FSDP, DEEPSPEED, MULTI_GPU or NO");
  }
  take_mesh(taken);
  const std::string group = taken.value_of("plan.tensor");
  if (!group.empty() && group != "1") taken.put("plan.sequence_parallel", "false", nullptr);
  taken.row({"cluster.gpus", "num_processes"});
  for (const char* key :
       {"num_machines", "machine_rank", "main_process_ip", "main_process_port", "rdzv_backend", "compute_environment"})
    taken.find(key);
  taken.assume("batch and length of sequences by default: they are the program's own");
  return taken.finish("accelerate", hints, profile);
}

}  // namespace rehearse::launch
