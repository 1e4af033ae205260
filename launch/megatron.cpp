// Plans as Megatron-LM's arguments; see megatron.h. The model is in megatron_fields.cpp, the way back in
// megatron_import.cpp.
#include "launch/megatron.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "sim/plan/cosine_end.h"
#include "sim/plan/plan.h"

namespace rehearse::launch {
namespace {

using plan::Plan;
using plan::Precision;
using plan::Recompute;
using plan::Schedule;
using plan::Training;

bool even_layers(const plan::Scenario& s) {
  const std::vector<std::int64_t>& layers = s.plan.layers_per_stage;
  return std::all_of(layers.begin(), layers.end(), [&](std::int64_t n) { return n == layers.front(); });
}

void add_schedule(Said& said, std::vector<Argument>& out) {
  const Plan& p = said.scenario().plan;
  said.said("plan.layers_per_stage");
  said.said("plan.embedding_as_layer");
  const bool plain = p.schedule == Schedule::one_f_one_b || p.schedule == Schedule::interleaved;
  if (!plain)
    said.left_out("plan.schedule", fmt::format("{}: Megatron-LM runs 1f1b, or interleaved with virtual stages",
                                               said.value("plan.schedule")));
  said.said("plan.schedule");
  said.said("plan.chunks");
  if (p.pipeline == 1) return;
  if (!plain && p.chunks > 1) {
    said.left_out("plan.chunks", fmt::format("{}: of that schedule", p.chunks));
    return said.left_out("plan.layers_per_stage", "of these chunks");
  }
  if (p.embedding_as_layer) {
    out.push_back({"account-for-embedding-in-pipeline-split", ""});
    out.push_back({"account-for-loss-in-pipeline-split", ""});
  } else if (!even_layers(said.scenario())) {
    out.push_back(
        {"pipeline-model-parallel-layout", pipeline_layout(p.layers_per_stage, said.scenario().model.mtp_depth)});
    return;  // the layout says the virtual stages too
  }
  if (p.chunks > 1) out.push_back({"num-virtual-stages-per-pipeline-rank", fmt::format("{}", p.chunks)});
}

void add_zero(Said& said, std::vector<Argument>& out) {
  const plan::Scenario& s = said.scenario();
  const Plan& p = s.plan;
  said.said("plan.zero");
  said.said("plan.zero_group");
  if (p.zero >= 1) out.push_back({"use-distributed-optimizer", ""});
  if (p.zero >= 2) {
    out.push_back({"use-megatron-fsdp", ""});
    out.push_back({"data-parallel-sharding-strategy", p.zero == 2 ? "optim_grads" : "optim_grads_params"});
    // megatron/training/arguments.py: "Megatron FSDP only supports fsdp_dtensor checkpoint format", saved or not.
    out.push_back({"ckpt-format", "fsdp_dtensor"});
  }
  if (p.zero >= 1 && p.replicas > 1)
    out.push_back({"num-distributed-optimizer-instances", fmt::format("{}", p.replicas)});
  if (p.bucket_given) {
    const std::int64_t bytes = s.training.grad_dtype == Precision::fp32 ? 4 : 2;
    if (p.bucket.count() % bytes == 0 && p.bucket.count() > 1)
      said.said("plan.bucket"), out.push_back({"ddp-bucket-size", fmt::format("{}", p.bucket.count() / bytes)});
  }
}

void add_activation_offload(Said& said, std::vector<Argument>& out) {
  said.said("plan.offload_layers");
  const std::int64_t layers = said.scenario().plan.offload_layers;
  if (layers > 0) out.push_back({"cpu-offloading-num-layers", fmt::format("{}", layers)});
}

void add_recompute(Said& said, std::vector<Argument>& out) {
  const Plan& p = said.scenario().plan;
  for (const char* key : {"plan.recompute", "plan.recompute_layers", "plan.recompute_latent", "plan.recompute_every",
                          "plan.recompute_norms", "plan.recompute_expert_activation"})
    said.said(key);
  if (p.recompute == Recompute::ops)
    return said.left_out("plan.recompute", "ops: torchtitan's; Megatron-LM names modules to compute again");
  // Megatron-Core refuses these modules with scales of delayed amaxes (transformer_config.py, __post_init__).
  const Training& t = said.scenario().training;
  const bool delayed = t.eight_bits() && t.fp8_recipe == plan::Fp8Recipe::delayed;
  std::vector<std::string> modules;
  for (const auto& [module, key, is] :
       {std::tuple{"core_attn", "plan.recompute", p.recompute == Recompute::selective},
        {"mla_up_proj", "plan.recompute_latent", p.recompute_latent},
        {"layernorm", "plan.recompute_norms", p.recompute_norms},
        {"moe_act", "plan.recompute_expert_activation", p.recompute_expert_activation}}) {
    const std::string_view name = module;
    // Transformer Engine's products of dense layers have the norm inside (core/models/gpt/gpt_layer_specs.py).
    if (is && name == "layernorm" && said.scenario().model.experts == 0 && !said.scenario().model.latent_attention())
      said.left_out(key, "norms of dense layers are inside the products behind them");
    else if (is && delayed && (name == "layernorm" || name == "moe_act"))
      said.left_out(key, fmt::format("{} is refused with fp8_recipe delayed", name));
    else if (is)
      modules.emplace_back(module);
  }
  if (p.recompute == Recompute::none && modules.empty()) return;
  if (p.recompute_every > 1)
    said.left_out("plan.recompute_every", fmt::format("{}: every layer, or the first ones", p.recompute_every));
  if (p.recompute == Recompute::full) {
    out.push_back({"recompute-granularity", "full"});
    out.push_back({"recompute-method", p.recompute_layers > 0 ? "block" : "uniform"});
    out.push_back({"recompute-num-layers", fmt::format("{}", std::max<std::int64_t>(p.recompute_layers, 1))});
    for (const auto& [key, is] : {std::pair{"plan.recompute_latent", p.recompute_latent},
                                  {"plan.recompute_norms", p.recompute_norms},
                                  {"plan.recompute_expert_activation", p.recompute_expert_activation}})
      if (is)
        said.left_out(key, p.recompute_layers > 0
                               ? fmt::format("true: --recompute-granularity full computes {} whole layers of a stage "
                                             "again, and no modules of the others",
                                             p.recompute_layers)
                               : "true: whole layers are computed again");
    return;
  }
  if (p.recompute_layers > 0)
    said.left_out("plan.recompute_layers",
                  fmt::format("{}: selective recomputation is of all layers", p.recompute_layers));
  out.push_back({"recompute-granularity", "selective"});
  if (modules != std::vector<std::string>{"core_attn"})
    out.push_back({"recompute-modules", fmt::format("{}", fmt::join(modules, " "))});
}

void add_precision(Said& said, std::vector<Argument>& out) {
  const Training& t = said.scenario().training;
  for (const char* key : {"training.precision", "training.grad_dtype", "training.reduce_dtype", "training.fp8_recipe",
                          "training.fp8_bf16_layers", "training.fp8_params", "training.fp8_transposes"})
    said.said(key);
  if (t.precision == Precision::fp16) {
    out.push_back({"fp16", ""});
    out.push_back({"initial-loss-scale", said.value("training.loss_scale")});
    out.push_back({"loss-scale-window", said.value("training.loss_scale_interval")});
  } else if (t.precision != Precision::fp32) {
    out.push_back({"bf16", ""});
  }
  said.said("training.loss_scale");
  said.said("training.loss_scale_interval");
  const bool fp32 = t.grad_dtype == Precision::fp32;
  if (t.precision != Precision::fp32) {
    if (fp32)
      out.push_back({"accumulate-allreduce-grads-in-fp32", ""});
    else if (t.precision != Precision::fp16)
      out.push_back({"grad-reduce-in-bf16", ""});
    if (t.reduce_dtype != t.grad_dtype)
      said.left_out("training.reduce_dtype",
                    fmt::format("{}: gradients are sent as they are stored", said.value("training.reduce_dtype")));
  }
  if (t.eight_bits()) {
    out.push_back({"fp8-format", t.fp8_block() > 0 || t.fp8_rows() ? "e4m3" : "hybrid"});
    if (t.fp8_rows())
      said.left_out("training.fp8_recipe", "rowwise: delayed, tensorwise, blockwise or mxfp8");
    else
      out.push_back({"fp8-recipe", said.value("training.fp8_recipe")});
    if (t.fp8_params) out.push_back({"fp8-param-gather", ""});
  }
  if (t.four_bits()) {
    out.push_back({"fp4-format", "e2m1"});
    out.push_back({"fp4-recipe", "nvfp4"});
  }
  if (t.narrow() && t.fp8_bf16_layers > 0) {
    out.push_back({"first-last-layers-bf16", ""});
    for (const char* flag : {"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"})
      out.push_back({flag, fmt::format("{}", t.fp8_bf16_layers)});
  }
  if (t.eight_bits() && !t.fp8_transposes)
    said.left_out("training.fp8_transposes", "false: the GPU's generation decides it");
}

// --optimizer-cpu-offload asks for --use-precision-aware-optimizer (megatron/training/arguments.py), which is of Adam
// and of the distributed optimizer (megatron/core/optimizer/optimizer_config.py).
bool offloads_optimizer(Said& said) {
  const plan::Scenario& s = said.scenario();
  said.said("plan.offload_optimizer");
  said.said("plan.offload_parameters");
  if (!s.plan.offload_optimizer) return false;
  if (s.plan.offload_parameters) said.left_out("plan.offload_parameters", "true: Megatron-LM holds parameters on GPUs");
  const bool there = s.plan.zero >= 1 && s.training.optimizer == plan::OptimizerKind::adamw;
  if (!there)
    said.left_out("plan.offload_optimizer",
                  "true: --optimizer-cpu-offload is of Adam and of the distributed optimizer (zero 1 and up)");
  return there;
}

void add_optimizer(Said& said, std::vector<Argument>& out) {
  const Training& t = said.scenario().training;
  for (const char* key :
       {"training.optimizer", "training.momentum", "training.betas", "training.eps", "training.moments"})
    said.said(key);
  if (t.optimizer == plan::OptimizerKind::sgd) {
    out.push_back({"optimizer", "sgd"});
    out.push_back({"sgd-momentum", fmt::format("{}", t.momentum)});
  } else {
    out.push_back({"optimizer", "adam"});
    out.push_back({"adam-beta1", fmt::format("{}", t.beta1)});
    out.push_back({"adam-beta2", fmt::format("{}", t.beta2)});
    out.push_back({"adam-eps", fmt::format("{}", t.eps)});
  }
  if (t.optimizer == plan::OptimizerKind::adafactor) said.left_out("training.optimizer", "adafactor: adam or sgd");
  if (t.optimizer == plan::OptimizerKind::muon) said.left_out("training.optimizer", "muon: adam or sgd");
  if (t.optimizer == plan::OptimizerKind::lamb) said.left_out("training.optimizer", "lamb: adam or sgd");
  if (t.moments == plan::MomentsKind::int8) said.left_out("training.moments", "int8: fp32, fp16, bf16 or fp8");
  const bool narrow = t.moments == plan::MomentsKind::bf16 && t.optimizer != plan::OptimizerKind::sgd;
  const bool on_hosts = offloads_optimizer(said);
  if (t.moments == plan::MomentsKind::bf16 && !narrow)
    said.left_out("training.moments", "bf16: only of Adam's moments");
  if (narrow || on_hosts) out.push_back({"use-precision-aware-optimizer", ""});
  if (narrow)
    for (const char* flag : {"exp-avg-dtype", "exp-avg-sq-dtype"}) out.push_back({flag, "bf16"});
  if (on_hosts) {
    out.push_back({"optimizer-cpu-offload", ""});
    out.push_back({"optimizer-offload-fraction", "1.0"});
  }
}

void add_rank_order(Said& said, std::vector<Argument>& out) {
  using enum Axis;
  const AxisOrder& order = said.scenario().plan.rank_order;
  said.said("plan.rank_order");
  if (order == AxisOrder{tensor, context, expert, data, pipeline}) return;
  if (order == AxisOrder{tensor, context, expert, pipeline, data}) return out.push_back({"use-tp-pp-dp-mapping", ""});
  said.left_out("plan.rank_order", fmt::format("{}: Megatron-LM numbers pipeline stages last, or replicas",
                                               said.value("plan.rank_order")));
}

// Of a whole step's graph losses cannot be looked at on the way (megatron/training/arguments.py, validate_args).
void add_cuda_graphs(Said& said, std::vector<Argument>& out) {
  const plan::CudaGraphs graphs = said.scenario().plan.cuda_graphs;
  said.said("plan.cuda_graphs");
  if (graphs == plan::CudaGraphs::none) return;
  out.push_back({"cuda-graph-impl", "local"});
  if (graphs != plan::CudaGraphs::step) return;
  out.push_back({"cuda-graph-scope", "full_iteration"});
  out.push_back({"no-check-for-nan-in-loss-and-grad", ""});
}

void megatron_rows(Said& said, const std::vector<FieldRow>& rows, std::vector<Argument>& out) {
  for (const FieldRow& row : rows)
    if (const auto value = said.field(row)) out.push_back({std::string(row.theirs), *value});
}

}  // namespace

std::string argument_lines(const std::vector<Argument>& list) {
  std::string out;
  for (const Argument& a : list) {
    const bool quotes = a.value.find_first_of("()|*[]+ ") != std::string::npos && a.flag != "recompute-modules";
    // A value that begins with - is none to argparse, but behind =.
    const char* gap = a.value.empty() ? "" : a.value.starts_with('-') ? "=" : " ";
    out += fmt::format("  --{}{}{}\n", a.flag, gap, quotes ? fmt::format("'{}'", a.value) : a.value);
  }
  return out;
}

// What is left out, and why, as comments.
std::string left_comments(const std::vector<LeftOut>& list) {
  if (list.empty()) return "";
  std::string out = "# Not said here, for lack of a field:\n";
  for (const LeftOut& one : list) out += fmt::format("#   {}: {}\n", one.key, one_line(one.why));
  return out;
}

const std::vector<FieldRow>& megatron_plan_rows() {
  static const std::vector<FieldRow> rows = {
      {"plan.tensor", "tensor-model-parallel-size", Mapped::integer, "1"},
      {"plan.pipeline", "pipeline-model-parallel-size", Mapped::integer, "1"},
      {"plan.context", "context-parallel-size", Mapped::integer, "1"},
      {"plan.context_kind",
       "cp-comm-type",
       Mapped::word,
       "ring",
       {{"ring", "p2p"}, {"all_to_all", "a2a"}, {"all_gather", "allgather"}}},
      {"plan.expert", "expert-model-parallel-size", Mapped::integer, "1"},
      {"plan.sequence_parallel", "sequence-parallel", Mapped::flag, "false"},
      {"plan.async_tensor_parallel", "tp-comm-overlap", Mapped::flag, "false"},
      {"plan.overlap_grad_reduce", "overlap-grad-reduce", Mapped::flag, "false"},
      {"plan.overlap_param_gather", "overlap-param-gather", Mapped::flag, "false"},
      {"plan.fused_weight_gradient", "no-gradient-accumulation-fusion", Mapped::no_flag, "true"},
      {"plan.overlap_expert_exchange", "overlap-moe-expert-parallel-comm", Mapped::flag, "false"},
      {"plan.overlap_shared_experts", "moe-shared-expert-overlap", Mapped::flag, "false"},
  };
  return rows;
}

const std::vector<FieldRow>& megatron_training_rows() {
  static const std::vector<FieldRow> rows = {
      {"plan.micro_batch", "micro-batch-size"},
      {"training.global_batch", "global-batch-size"},
      {"training.seq_len", "seq-length"},
      {"training.lr", "lr", Mapped::number},
      {"training.lr_schedule", "lr-decay-style", Mapped::word, "", {{"constant", "constant"}, {"cosine", "cosine"}}},
      {"training.warmup_steps", "lr-warmup-iters", Mapped::integer, "0"},
      {"training.weight_decay", "weight-decay", Mapped::number},
      {"training.clip", "clip-grad", Mapped::number},
      {"training.seed", "seed"},
      {"training.deterministic", "deterministic-mode", Mapped::flag, "false"},
  };
  return rows;
}

MegatronArguments megatron_arguments(Said& said) {
  MegatronArguments a;
  megatron_model_arguments(said, a.model);
  megatron_rows(said, megatron_plan_rows(), a.parallel);
  const Plan& p = said.scenario().plan;
  if (p.expert > 1) {
    said.said("plan.expert_tensor");
    a.parallel.push_back({"expert-tensor-parallel-size", p.whole_experts() ? "1" : fmt::format("{}", p.tensor)});
  }
  add_schedule(said, a.parallel);
  add_zero(said, a.parallel);
  add_recompute(said, a.parallel);
  add_activation_offload(said, a.parallel);
  if (p.fused_experts)
    said.left_out("plan.fused_experts",
                  "true: later than Megatron-Core 0.15, by --use-transformer-engine-op-fuser and "
                  "NVTE_CUTEDSL_FUSED_GROUPED_MLP=1");
  if (said.scenario().model.latent_attention()) {
    // Its kernel is experimental, and --no-rope-fusion the way without (megatron/core/fusions/
    // fused_mla_yarn_rope_apply.py, experimental_fn).
    said.said("plan.fused_latent_rope");
    a.parallel.push_back({p.fused_latent_rope ? "enable-experimental" : "no-rope-fusion", ""});
  }
  add_cuda_graphs(said, a.parallel);
  add_rank_order(said, a.parallel);
  if (said.scenario().training.packs()) {
    said.said("training.documents");
    a.training.push_back({"reset-position-ids", ""});
    a.training.push_back({"reset-attention-mask", ""});
  }
  if (said.scenario().training.ignored_token >= 0) {
    said.left_out("training.ignored_token", "which targets count is the dataset's loss mask to say");
    a.training.push_back({"calculate-per-token-loss", ""});
  }
  megatron_rows(said, megatron_training_rows(), a.training);
  const plan::Training& t = said.scenario().training;
  if (t.lr_schedule == "cosine") a.training.push_back({"min-lr", fmt::format("{:.15g}", t.lr * plan::kCosineEnd)});
  add_precision(said, a.training);
  add_optimizer(said, a.training);
  said.said("training.first_weights");
  if (said.scenario().training.first_weights == plan::FirstWeights::broadcast)
    a.training.push_back({"data-parallel-random-init", ""});
  return a;
}

Exported export_megatron(const plan::Scenario& s, std::int64_t gpus_a_node) {
  Said said(s, kMegatronProfile);
  const MegatronArguments a = megatron_arguments(said);
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  const std::vector<std::string> nccl = nccl_variables(said);
  Exported out;
  out.left_out = said.finish();
  out.text =
      "#!/usr/bin/env bash\n# " + one_line(s.name) +
      "\n# Made by rehearse export --to megatron, for Megatron-LM with Megatron-Core 0.15; run it on each node.\n" +
      left_comments(out.left_out);
  // Megatron's FSDP refuses 1; elsewhere 1 keeps the order in which communication and products are launched.
  const bool fsdp = s.plan.zero >= 2;
  out.text += fsdp ? "unset CUDA_DEVICE_MAX_CONNECTIONS  # --use-megatron-fsdp wants several\n"
                   : "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  out.text += "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n";
  for (const std::string& line : nccl) out.text += "export " + line + "\n";
  if (s.training.deterministic && out.text.find("NCCL_ALGO") == std::string::npos)
    out.text += "export NCCL_ALGO=Ring\n";
  if (s.training.deterministic)
    out.text += "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0\nexport CUBLAS_WORKSPACE_CONFIG=:4096:8\n";
  out.text += fmt::format(
      "\nDISTRIBUTED_ARGS=(\n  --nproc-per-node {}\n  --nnodes {}\n  --node-rank \"${{NODE_RANK:-0}}\"\n"
      "  --master-addr \"${{MASTER_ADDR:-localhost}}\"\n  --master-port \"${{MASTER_PORT:-29500}}\"\n)\n",
      nodes.a_node, nodes.nodes);
  out.text += "MODEL_ARGS=(\n" + argument_lines(a.model) + ")\n";
  out.text += "PARALLEL_ARGS=(\n" + argument_lines(a.parallel) + ")\n";
  out.text += "TRAINING_ARGS=(\n" + argument_lines(a.training) + ")\n";
  const std::string trainer = megatron_trainer(s.model);
  out.text += fmt::format(
      "# Data, tokenizer, length of the run and checkpoints are yours: arguments of this script go to {}.\n"
      "torchrun \"${{DISTRIBUTED_ARGS[@]}}\" {} \\\n",
      trainer.substr(0, trainer.find(' ')), trainer);
  out.text +=
      "  --use-mcore-models --transformer-impl transformer_engine \\\n"
      "  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" \"${TRAINING_ARGS[@]}\" \"$@\"\n";
  return out;
}

}  // namespace rehearse::launch
