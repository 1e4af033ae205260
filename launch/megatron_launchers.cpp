// Megatron-LM's arguments for other launchers; see megatron.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "launch/megatron.h"

namespace rehearse::launch {
namespace {

std::vector<Argument> all_of(const MegatronArguments& a) {
  std::vector<Argument> all = a.model;
  for (const auto* part : {&a.parallel, &a.training}) all.insert(all.end(), part->begin(), part->end());
  return all;
}

std::vector<std::string> megatron_environment(Said& said) {
  std::vector<std::string> lines = {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"};
  if (said.scenario().plan.zero < 2) lines.insert(lines.begin(), "CUDA_DEVICE_MAX_CONNECTIONS=1");
  for (std::string& line : nccl_variables(said)) lines.push_back(std::move(line));
  return lines;
}

// Where Megatron-Bridge's configuration has an argument, if not as model.<name>; "": not at all, said otherwise.
const std::map<std::string, std::string, std::less<>> kBridgePlaces = {
    {"micro-batch-size", "train.micro_batch_size"},
    {"global-batch-size", "train.global_batch_size"},
    {"lr", "optimizer.lr"},
    {"min-lr", "optimizer.min_lr"},
    {"optimizer", "optimizer.optimizer"},
    {"weight-decay", "optimizer.weight_decay"},
    {"clip-grad", "optimizer.clip_grad"},
    {"adam-beta1", "optimizer.adam_beta1"},
    {"adam-beta2", "optimizer.adam_beta2"},
    {"adam-eps", "optimizer.adam_eps"},
    {"sgd-momentum", "optimizer.sgd_momentum"},
    {"use-precision-aware-optimizer", "optimizer.use_precision_aware_optimizer"},
    {"exp-avg-dtype", "optimizer.exp_avg_dtype"},
    {"exp-avg-sq-dtype", "optimizer.exp_avg_sq_dtype"},
    {"initial-loss-scale", "optimizer.initial_loss_scale"},
    {"loss-scale-window", "optimizer.loss_scale_window"},
    {"lr-decay-style", "scheduler.lr_decay_style"},
    {"lr-warmup-iters", "scheduler.lr_warmup_iters"},
    {"seed", "rng.seed"},
    {"use-distributed-optimizer", "ddp.use_distributed_optimizer"},
    {"overlap-grad-reduce", "ddp.overlap_grad_reduce"},
    {"overlap-param-gather", "ddp.overlap_param_gather"},
    {"ddp-bucket-size", "ddp.bucket_size"},
    {"use-megatron-fsdp", "ddp.use_megatron_fsdp"},
    {"data-parallel-sharding-strategy", "ddp.data_parallel_sharding_strategy"},
    {"ckpt-format", "checkpoint.ckpt_format"},
    {"optimizer-cpu-offload", "optimizer.optimizer_cpu_offload"},
    {"optimizer-offload-fraction", "optimizer.optimizer_offload_fraction"},
    {"enable-experimental", "dist.enable_megatron_core_experimental"},
    {"no-rope-fusion", "model.apply_rope_fusion"},
    {"num-distributed-optimizer-instances", "ddp.num_distributed_optimizer_instances"},
    {"accumulate-allreduce-grads-in-fp32", "ddp.grad_reduce_in_fp32"},
    {"grad-reduce-in-bf16", "ddp.grad_reduce_in_fp32"},
    {"fp8-param-gather", "ddp.fp8_param_gather"},
    {"use-tp-pp-dp-mapping", "dist.use_tp_pp_dp_mapping"},
    {"no-check-for-nan-in-loss-and-grad", "rerun_state_machine.check_for_nan_in_loss"},
    {"num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size"},
    {"num-experts", "model.num_moe_experts"},
    {"untie-embeddings-and-output-weights", "model.share_embeddings_and_output_weights"},
    {"disable-bias-linear", "model.add_bias_linear"},
    {"swiglu", "model.gated_linear_unit"},
    {"squared-relu", ""},
    {"group-query-attention", ""},
    {"max-position-embeddings", ""},
    {"bf16", ""},
    {"fp16", ""},
    {"fp8-format", ""},
    {"fp8-recipe", ""},
    {"fp4-format", ""},
    {"fp4-recipe", ""},
};

std::string bridge_value(const Argument& a) {
  if (a.flag == "grad-reduce-in-bf16" || a.flag == "untie-embeddings-and-output-weights" ||
      a.flag == "disable-bias-linear" || a.flag == "no-rope-fusion" || a.flag == "no-check-for-nan-in-loss-and-grad")
    return "False";
  if (a.value.empty()) return "True";
  if (a.flag == "exp-avg-dtype" || a.flag == "exp-avg-sq-dtype") return "torch.bfloat16";
  if (a.flag == "attention-backend") return "AttnBackend." + a.value;
  if (a.flag == "recompute-modules") {
    std::string list;
    for (std::size_t at = 0; at < a.value.size();) {
      const std::size_t end = std::min(a.value.find(' ', at), a.value.size());
      list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", a.value.substr(at, end - at));
      at = end + 1;
    }
    return "[" + list + "]";
  }
  if (a.flag == "window-size" || a.flag == "moe-layer-freq")
    return a.flag == "window-size" ? a.value : a.value.substr(1, a.value.size() - 2);
  return a.value.find_first_not_of("0123456789.e-") == std::string::npos ? a.value : fmt::format("\"{}\"", a.value);
}

// The names of megatron/bridge/training/mixed_precision.py.
const char* bridge_precision(const plan::Training& t) {
  using plan::Fp8Recipe;
  using plan::Precision;
  if (t.precision == Precision::fp16) return "fp16_mixed";
  if (t.four_bits()) return "bf16_with_nvfp4_mixed";
  if (!t.eight_bits()) return "bf16_mixed";
  switch (t.fp8_recipe) {
    case Fp8Recipe::tensorwise:
      return "bf16_with_fp8_current_scaling_mixed";
    case Fp8Recipe::blockwise:
      return "bf16_with_fp8_subchannel_scaling_mixed";
    case Fp8Recipe::mxfp8:
      return "bf16_with_mxfp8_mixed";
    case Fp8Recipe::rowwise:  // said to be left out
    case Fp8Recipe::delayed:
      break;
  }
  return "bf16_with_fp8_delayed_scaling_mixed";
}

}  // namespace

Exported export_megatron_bridge(const plan::Scenario& s, std::int64_t gpus_a_node) {
  Said said(s, kMegatronProfile);
  const std::vector<Argument> all = all_of(megatron_arguments(said));
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  Exported out;
  std::string environment;
  for (const std::string& line : megatron_environment(said)) environment += line + " ";
  out.run = {fmt::format(
      "{}torchrun --nnodes {} --nproc-per-node {} --rdzv-backend c10d --rdzv-endpoint HOST:29500 pretrain.py",
      environment, nodes.nodes, nodes.a_node)};
  out.left_out = said.finish();
  out.text =
      "# " + one_line(s.name) +
      "\n# Made by rehearse export, for Megatron-Bridge 0.2: lines behind cfg = pretrain_config() of a recipe.\n" +
      left_comments(out.left_out);
  if (s.training.precision != plan::Precision::fp32)
    out.text += fmt::format("cfg.mixed_precision = \"{}\"\n", bridge_precision(s.training));
  for (const Argument& a : all) {
    std::string place = "model." + a.flag;
    std::replace(place.begin(), place.end(), '-', '_');
    if (const auto found = kBridgePlaces.find(a.flag); found != kBridgePlaces.end()) place = found->second;
    if (place.empty()) continue;
    if (a.flag == "overlap-moe-expert-parallel-comm") place = "comm_overlap.overlap_moe_expert_parallel_comm";
    out.text += fmt::format("cfg.{} = {}\n", place, bridge_value(a));
    if (a.flag == "enable-experimental") out.text += "cfg.model.apply_rope_fusion = True\n";
    if (a.flag == "use-distributed-optimizer") out.text += "cfg.optimizer.use_distributed_optimizer = True\n";
    if (a.flag == "cpu-offloading-num-layers")
      out.text += "cfg.model.cpu_offloading = True\ncfg.model.cpu_offloading_weights = False\n";
    if (a.flag == "seq-length") out.text += fmt::format("cfg.dataset.sequence_length = {}\n", a.value);
  }
  out.notes = {"AttnBackend is megatron.core.transformer.enums.AttnBackend; torch is PyTorch's module"};
  return out;
}

Exported export_sbatch(const plan::Scenario& s, std::int64_t gpus_a_node) {
  Said said(s, kMegatronProfile);
  const std::vector<Argument> all = all_of(megatron_arguments(said));
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  const std::vector<std::string> environment = megatron_environment(said);
  Exported out;
  out.left_out = said.finish();
  out.text = fmt::format(
                 "#!/usr/bin/env bash\n#SBATCH --nodes={}\n#SBATCH --gpus-per-node={}\n#SBATCH --ntasks-per-node=1\n"
                 "#SBATCH --exclusive\n# {}\n# Made by rehearse export, for Slurm 22 and later, and Megatron-LM with "
                 "Megatron-Core 0.15.\n",
                 nodes.nodes, nodes.a_node, one_line(s.name)) +
             left_comments(out.left_out);
  for (const std::string& line : environment) out.text += "export " + line + "\n";
  out.text += "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\nARGUMENTS=(\n" +
              argument_lines(all) + ")\n";
  out.text += fmt::format(
      "srun torchrun --nnodes {} --nproc-per-node {} --rdzv-backend c10d --rdzv-id \"$SLURM_JOB_ID\" \\\n"
      "  --rdzv-endpoint \"$MASTER_ADDR:29500\" {} --use-mcore-models --transformer-impl "
      "transformer_engine \\\n"
      "  \"${{ARGUMENTS[@]}}\" \"$@\"\n",
      nodes.nodes, nodes.a_node, megatron_trainer(s.model));
  out.run = {"sbatch FILE"};
  return out;
}

Exported export_pytorchjob(const plan::Scenario& s, std::int64_t gpus_a_node) {
  Said said(s, kMegatronProfile);
  const std::vector<Argument> all = all_of(megatron_arguments(said));
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  std::string pod = fmt::format(
      "      template:\n        spec:\n          containers:\n            - name: pytorch\n              image: "
      "YOUR_IMAGE\n"
      "              resources: {{limits: {{nvidia.com/gpu: {}}}}}\n              env:\n",
      nodes.a_node);
  for (const std::string& line : megatron_environment(said)) {
    const std::size_t equals = line.find('=');
    std::string value = line.substr(equals + 1);
    value.erase(std::remove(value.begin(), value.end(), '\''), value.end());
    pod += fmt::format("                - {{name: {}, value: '{}'}}\n", line.substr(0, equals), value);
  }
  std::string trainer = megatron_trainer(s.model);
  for (std::size_t at = trainer.find(' '); at != std::string::npos; at = trainer.find(' ', at + 2))
    trainer.insert(at, ",");
  pod += fmt::format("              command: [torchrun, {}, --use-mcore-models]\n              args:\n", trainer);
  for (const Argument& a : all) {
    if (a.value.starts_with('-')) {
      pod += fmt::format("                - '--{}={}'\n", a.flag, a.value);
      continue;
    }
    pod += fmt::format("                - '--{}'\n", a.flag);
    for (std::size_t at = 0; at < a.value.size();) {
      const bool several = a.flag == "recompute-modules";
      const std::size_t end = several ? std::min(a.value.find(' ', at), a.value.size()) : a.value.size();
      pod += fmt::format("                - '{}'\n", a.value.substr(at, end - at));
      at = end + 1;
    }
  }
  Exported out;
  out.left_out = said.finish();
  out.text = "# " + one_line(s.name) +
             "\n# Made by rehearse export, for kubeflow.org/v1 and Megatron-LM with Megatron-Core 0.15.\n" +
             left_comments(out.left_out);
  out.text += fmt::format(
      "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: rehearsed-plan\nspec:\n"
      "  nprocPerNode: '{}'\n  pytorchReplicaSpecs:\n    Master:\n      replicas: 1\n"
      "      restartPolicy: OnFailure\n{}",
      nodes.a_node, pod);
  if (nodes.nodes > 1)
    out.text +=
        fmt::format("    Worker:\n      replicas: {}\n      restartPolicy: OnFailure\n{}", nodes.nodes - 1, pod);
  out.run = {"kubectl apply -f FILE"};
  out.notes = {"image, data and volumes are yours; torchrun takes ranks and addresses from the operator (PET_*)"};
  return out;
}

}  // namespace rehearse::launch
