// Plans as Megatron-LM's arguments, and back; see megatron.h. The model is in megatron_fields.cpp.
#include "launch/megatron.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "sim/base/text_check.h"
#include "sim/plan/plan.h"

namespace rehearse::launch {
namespace {

using plan::Plan;
using plan::Precision;
using plan::Recompute;
using plan::Schedule;
using plan::Training;

constexpr const char* kMegatronProfile = "megatron-core";

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
  }
  if (p.zero >= 1 && p.replicas > 1)
    out.push_back({"num-distributed-optimizer-instances", fmt::format("{}", p.replicas)});
  if (p.bucket_given) {
    const std::int64_t bytes = s.training.grad_dtype == Precision::fp32 ? 4 : 2;
    if (p.bucket.count() % bytes == 0 && p.bucket.count() > 1)
      said.said("plan.bucket"), out.push_back({"ddp-bucket-size", fmt::format("{}", p.bucket.count() / bytes)});
  }
}

void add_recompute(Said& said, std::vector<Argument>& out) {
  const Plan& p = said.scenario().plan;
  for (const char* key : {"plan.recompute", "plan.recompute_layers", "plan.recompute_latent", "plan.recompute_every",
                          "plan.recompute_norms", "plan.recompute_expert_activation"})
    said.said(key);
  if (p.recompute == Recompute::ops)
    return said.left_out("plan.recompute", "ops: torchtitan's; Megatron-LM names modules to compute again");
  std::vector<std::string> modules;
  for (const auto& [module, is] : {std::pair{"core_attn", p.recompute == Recompute::selective},
                                   {"mla_up_proj", p.recompute_latent},
                                   {"layernorm", p.recompute_norms},
                                   {"moe_act", p.recompute_expert_activation}})
    if (is) modules.emplace_back(module);
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
      if (is) said.left_out(key, "whole layers are computed again");
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
    out.push_back({"fp8-format", t.fp8_block() > 0 ? "e4m3" : "hybrid"});
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
  if (t.moments == plan::MomentsKind::int8) said.left_out("training.moments", "int8: fp32, fp16, bf16 or fp8");
  if (t.moments == plan::MomentsKind::bf16) {
    if (t.optimizer == plan::OptimizerKind::sgd)
      return said.left_out("training.moments", "bf16: only of Adam's moments");
    for (const auto& [flag, value] :
         {std::pair{"use-precision-aware-optimizer", ""}, {"exp-avg-dtype", "bf16"}, {"exp-avg-sq-dtype", "bf16"}})
      out.push_back({flag, value});
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

void megatron_rows(Said& said, const std::vector<FieldRow>& rows, std::vector<Argument>& out) {
  for (const FieldRow& row : rows)
    if (const auto value = said.field(row)) out.push_back({std::string(row.theirs), *value});
}

}  // namespace

std::string argument_lines(const std::vector<Argument>& list) {
  std::string out;
  for (const Argument& a : list) {
    const bool quotes = a.value.find_first_of("()|*[]+ ") != std::string::npos && a.flag != "recompute-modules";
    out += fmt::format("  --{}{}\n", a.flag,
                       a.value.empty() ? ""
                       : quotes        ? fmt::format(" '{}'", a.value)
                                       : " " + a.value);
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
      {"plan.overlap_grad_reduce", "overlap-grad-reduce", Mapped::flag, "false"},
      {"plan.overlap_param_gather", "overlap-param-gather", Mapped::flag, "false"},
      {"plan.fused_weight_gradient", "no-gradient-accumulation-fusion", Mapped::no_flag, "true"},
      {"plan.overlap_expert_exchange", "overlap-moe-expert-parallel-comm", Mapped::flag, "false"},
      {"plan.overlap_shared_experts", "moe-shared-expert-overlap", Mapped::flag, "false"},
      {"plan.cuda_graphs",
       "cuda-graph-impl",
       Mapped::word,
       "none",
       {{"none", "none"}, {"layer", "local"}, {"layer", "transformer_engine"}, {"step", "full_iteration"}}},
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
  add_rank_order(said, a.parallel);
  megatron_rows(said, megatron_training_rows(), a.training);
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
  out.text +=
      "# Data, tokenizer, length of the run and checkpoints are yours: arguments of this script go to "
      "pretrain_gpt.py.\n"
      "torchrun \"${DISTRIBUTED_ARGS[@]}\" pretrain_gpt.py \\\n"
      "  --use-mcore-models --transformer-impl transformer_engine \\\n"
      "  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" \"${TRAINING_ARGS[@]}\" \"$@\"\n";
  return out;
}

bool is_megatron(const formats::ShellScript& script) {
  const std::vector<Setting> settings = settings_of(script);
  return std::any_of(settings.begin(), settings.end(), [](const Setting& s) {
    return s.key == "tensor-model-parallel-size" || s.key == "num-layers" || s.key == "micro-batch-size" ||
           s.key == "pipeline-model-parallel-size";
  });
}

namespace {

// For products; what is out of range the scenario's reader refuses.
std::int64_t degree_of(Taken& taken, const char* key) {
  return std::clamp<std::int64_t>(taken.integer(key).value_or(1), 1, 1'000'000);
}

void take_schedule(Taken& taken) {
  const std::int64_t stages = degree_of(taken, "pipeline-model-parallel-size");
  std::int64_t chunks = 1;
  const Setting* from = nullptr;
  if (const auto virtual_stages = taken.integer("num-virtual-stages-per-pipeline-rank")) {
    chunks = *virtual_stages;
    from = taken.find("num-virtual-stages-per-pipeline-rank");
  } else if (const auto layers = taken.integer("num-layers-per-virtual-pipeline-stage")) {
    from = taken.find("num-layers-per-virtual-pipeline-stage");
    const std::int64_t all = taken.integer("num-layers").value_or(0), parts = *layers * stages;
    if (*layers < 1 || *layers > 1'000'000 || all == 0 || all % parts != 0)
      taken.error(*from, fmt::format("{} layers do not divide by {} layers x {} stages", all, *layers, stages));
    else
      chunks = all / parts;
  }
  if (taken.flag("account-for-embedding-in-pipeline-split")) {
    const Setting* embedding = taken.find("account-for-embedding-in-pipeline-split");
    if (taken.flag("account-for-loss-in-pipeline-split"))
      taken.put("plan.embedding_as_layer", "true", embedding);
    else
      taken.error(*embedding, "is available together with --account-for-loss-in-pipeline-split alone");
  }
  if (const auto layout = taken.text("pipeline-model-parallel-layout")) {
    from = taken.find("pipeline-model-parallel-layout");
    const auto layers = layers_of_layout(*layout);
    if (!layers || static_cast<std::int64_t>(layers->size()) % stages != 0) {
      taken.error(*from, fmt::format("{} is not available for {} stages", detail::shown(*layout), stages),
                  "expected stages parted by |, as in Et*3|t*4|t*4|t*3L, without brackets and other layers");
    } else {
      std::string list;
      for (const std::int64_t n : *layers) list += fmt::format("{}{}", list.empty() ? "" : ", ", n);
      taken.put("plan.layers_per_stage", "[" + list + "]", from);
      chunks = static_cast<std::int64_t>(layers->size()) / stages;
    }
  }
  const auto first = taken.integer("decoder-first-pipeline-num-layers");
  const auto last = taken.integer("decoder-last-pipeline-num-layers");
  if ((first || last) && stages > 1 && chunks == 1) {
    const Setting* at = taken.find(first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers");
    const std::int64_t all = taken.integer("num-layers").value_or(0);
    const std::int64_t inner = stages - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t rest = all - first.value_or(0) - last.value_or(0);
    if (stages > 10'000 || rest < 0 || (inner == 0 ? rest != 0 : rest % inner != 0)) {
      taken.error(*at, fmt::format("the other {} of {} layers do not divide by {} stages", rest, all, inner));
    } else {
      std::string list;
      for (std::int64_t i = 0; i < stages; ++i) {
        const bool ends = (i == 0 && first) || (i == stages - 1 && last);
        list += fmt::format("{}{}", i > 0 ? ", " : "", !ends ? rest / inner : i == 0 ? *first : *last);
      }
      taken.put("plan.layers_per_stage", "[" + list + "]", at);
    }
  }
  if (chunks <= 1) return;
  taken.put("plan.schedule", "interleaved", from);
  taken.put("plan.chunks", fmt::format("{}", chunks), from);
}

void take_zero(Taken& taken) {
  const bool optimizer = taken.flag("use-distributed-optimizer");
  const Setting* at = taken.find("use-distributed-optimizer");
  std::string zero = optimizer ? "1" : "0";
  if (taken.flag("use-megatron-fsdp") || taken.flag("use-torch-fsdp2") || taken.flag("use-custom-fsdp")) {
    at = taken.find(taken.has("use-megatron-fsdp") ? "use-megatron-fsdp"
                    : taken.has("use-torch-fsdp2") ? "use-torch-fsdp2"
                                                   : "use-custom-fsdp");
    const bool torch = taken.has("use-torch-fsdp2");
    const std::string strategy =
        taken.text("data-parallel-sharding-strategy").value_or(torch ? "optim_grads_params" : "no_shard");
    const Setting* named = taken.find("data-parallel-sharding-strategy");
    if (named != nullptr) at = named;
    zero = strategy == "optim_grads_params" ? "3"
           : strategy == "optim_grads"      ? "2"
           : strategy == "optim"            ? "1"
           : strategy == "no_shard"         ? "0"
                                            : "";
    if (zero.empty())
      return taken.error(*at, fmt::format("{} is not known", detail::shown(strategy)),
                         "no_shard, optim, optim_grads or optim_grads_params");
  }
  taken.put("plan.zero", zero, at);
  const auto instances = taken.integer("num-distributed-optimizer-instances");
  if (!instances || *instances <= 1 || zero == "0") return;
  const std::string gpus = taken.value_of("cluster.gpus");
  const std::int64_t split =
      degree_of(taken, "tensor-model-parallel-size") * degree_of(taken, "pipeline-model-parallel-size");
  const std::int64_t ranks = gpus.empty() ? 0 : std::stoll(gpus);
  const Setting* from = taken.find("num-distributed-optimizer-instances");
  if (ranks == 0 || split > ranks || ranks / split % *instances != 0)
    return taken.error(*from, fmt::format("{} groups of {} ranks over {} each", *instances, ranks, split),
                       "--nproc-per-node and --nnodes say how many ranks there are");
  taken.put("plan.zero_group", fmt::format("{}", ranks / split / *instances), from);
}

void take_recompute(Taken& taken) {
  const Setting* at = taken.find("recompute-granularity");
  std::string kind = taken.text("recompute-granularity").value_or("");
  if (taken.flag("recompute-activations")) {
    at = taken.find("recompute-activations");
    kind = "selective";
  }
  const Setting* modules = taken.find("recompute-modules");
  const auto layers = taken.integer("recompute-num-layers");
  const std::string method = taken.text("recompute-method").value_or("");
  if (kind.empty()) return taken.put("plan.recompute", "none", nullptr);
  if (kind == "selective") {
    bool core = modules == nullptr || modules->values.empty();
    const std::map<std::string_view, const char*> known{{"mla_up_proj", "plan.recompute_latent"},
                                                        {"layernorm", "plan.recompute_norms"},
                                                        {"moe_act", "plan.recompute_expert_activation"}};
    std::vector<const char*> keys;
    if (modules != nullptr)
      for (const std::string& one : modules->values) {
        if (one == "core_attn")
          core = true;
        else if (const auto found = known.find(one); found != known.end())
          keys.push_back(found->second);
        else
          taken.ignore(fmt::format("--recompute-modules {}, which no key has", one_line(one)));
      }
    taken.put("plan.recompute", core ? "selective" : "none", at);
    for (const char* key : keys) taken.put(key, "true", modules);
    return;
  }
  if (kind != "full") return taken.error(*at, fmt::format("{} is not known", detail::shown(kind)), "full or selective");
  taken.put("plan.recompute", "full", at);
  if (method == "block" && layers)
    taken.put("plan.recompute_layers", fmt::format("{}", *layers), taken.find("recompute-num-layers"));
  if (method == "uniform" && layers.value_or(1) > 1)
    taken.assume(fmt::format("every layer computed again by itself, not {} as one", *layers));
}

void take_precision(Taken& taken) {
  const Setting *fp16 = taken.find("fp16"), *bf16 = taken.find("bf16"), *fp8 = taken.find("fp8-format"),
                *fp4 = taken.find("fp4-format");
  taken.find("fp4-recipe");
  if (taken.has("fp8-hybrid")) fp8 = taken.find("fp8-hybrid");
  const bool half = fp16 != nullptr, brain = bf16 != nullptr;
  taken.put("training.precision",
            fp4     ? "nvfp4"
            : fp8   ? "fp8"
            : half  ? "fp16"
            : brain ? "bf16"
                    : "fp32",
            fp4    ? fp4
            : fp8  ? fp8
            : half ? fp16
                   : bf16);
  if (!half && !brain && !fp8 && !fp4) taken.assume("fp32, since neither --bf16 nor --fp16 is there");
  if (half || brain || fp8 || fp4) {
    const bool reduced = taken.flag("grad-reduce-in-bf16"), fp32 = taken.flag("accumulate-allreduce-grads-in-fp32");
    const bool full = !reduced && (fp32 || !half);
    const Setting* at = taken.find(reduced ? "grad-reduce-in-bf16" : "accumulate-allreduce-grads-in-fp32");
    const std::string narrow = half ? "fp16" : "bf16";
    taken.put("training.grad_dtype", full ? "fp32" : narrow, at);
    taken.put("training.reduce_dtype", full ? "fp32" : narrow, nullptr);
  }
  if (half) {
    taken.row({"training.loss_scale", "initial-loss-scale", Mapped::number});
    taken.row({"training.loss_scale_interval", "loss-scale-window"});
  }
  if (fp8) {
    taken.row({"training.fp8_recipe",
               "fp8-recipe",
               Mapped::word,
               "delayed",
               {{"delayed", "delayed"}, {"tensorwise", "tensorwise"}, {"blockwise", "blockwise"}, {"mxfp8", "mxfp8"}}});
    taken.row({"training.fp8_params", "fp8-param-gather", Mapped::flag, "false"});
  }
  if ((fp8 || fp4) && taken.flag("first-last-layers-bf16")) {
    const auto start = taken.integer("num-layers-at-start-in-bf16"), end = taken.integer("num-layers-at-end-in-bf16");
    taken.put("training.fp8_bf16_layers", fmt::format("{}", start.value_or(1)), taken.find("first-last-layers-bf16"));
    if (start.value_or(1) != end.value_or(1))
      taken.assume(fmt::format("{} blocks in bf16 at the end too, as at the start", start.value_or(1)));
  }
}

void take_optimizer(Taken& taken) {
  taken.row({"training.optimizer", "optimizer", Mapped::word, "adamw", {{"adamw", "adam"}, {"sgd", "sgd"}}});
  if (taken.value_of("training.optimizer") == "sgd") {
    taken.row({"training.momentum", "sgd-momentum", Mapped::number});
  } else if (taken.has("adam-beta1") || taken.has("adam-beta2")) {
    const double first = taken.number("adam-beta1").value_or(0.9), second = taken.number("adam-beta2").value_or(0.999);
    taken.put("training.betas", fmt::format("[{}, {}]", first, second),
              taken.find(taken.has("adam-beta1") ? "adam-beta1" : "adam-beta2"));
  }
  taken.row({"training.eps", "adam-eps", Mapped::number});
  taken.flag("use-precision-aware-optimizer");
  const std::string average = taken.text("exp-avg-dtype").value_or("fp32"),
                    square = taken.text("exp-avg-sq-dtype").value_or("fp32");
  if (average == "bf16" && square == "bf16") taken.put("training.moments", "bf16", taken.find("exp-avg-dtype"));
  if ((average == "bf16") != (square == "bf16") || average == "fp8" || average == "fp16")
    taken.ignore(fmt::format("--exp-avg-dtype {} and --exp-avg-sq-dtype {}, which no key has together",
                             one_line(average), one_line(square)));
}

void take_expert_plan(Taken& taken) {
  const std::string kind = taken.text("moe-token-dispatcher-type").value_or("");
  const bool deep = taken.flag("moe-enable-deepep") || taken.has("moe-flex-dispatcher-backend");
  taken.find("moe-flex-dispatcher-backend");
  if (kind == "flex" && deep) taken.put("plan.expert_dispatch", "forwarding", taken.find("moe-token-dispatcher-type"));
  if (kind == "allgather") taken.put("plan.expert_dispatch", "all_gather", taken.find("moe-token-dispatcher-type"));
  taken.flag("moe-grouped-gemm");
  const auto split = taken.integer("expert-tensor-parallel-size");
  const std::int64_t tensor = taken.integer("tensor-model-parallel-size").value_or(1);
  if (!split || tensor == 1) return;
  const Setting* at = taken.find("expert-tensor-parallel-size");
  if (*split == 1)
    taken.put("plan.expert_tensor", "1", at);
  else if (*split != tensor)
    taken.error(*at, fmt::format("{} is not available with tensor parallelism of {}", *split, tensor),
                fmt::format("1 or {}", tensor));
}

}  // namespace

Imported import_megatron(const std::string& file, const formats::ShellScript& script, const ImportHints& hints) {
  Taken taken(file, settings_of(script), "--");
  take_ranks(taken);
  if (hints.model.empty()) take_megatron_model(taken);
  for (const FieldRow& row : megatron_plan_rows()) taken.row(row);
  for (const FieldRow& row : megatron_training_rows()) {
    if (row.theirs == "lr-decay-style") {
      const auto style = taken.text("lr-decay-style");
      if (style && *style != "constant" && *style != "cosine") {
        taken.assume(fmt::format("a constant learning rate, not --lr-decay-style {}", one_line(*style)));
        continue;
      }
    }
    taken.row(row);
  }
  take_schedule(taken);
  take_zero(taken);
  take_recompute(taken);
  take_precision(taken);
  take_optimizer(taken);
  take_expert_plan(taken);
  if (taken.flag("data-parallel-random-init"))  // each replica draws its own, and then gets those of the first
    taken.put("training.first_weights", "broadcast", taken.find("data-parallel-random-init"));
  if (taken.flag("use-tp-pp-dp-mapping"))
    taken.put("plan.rank_order", "[tensor, context, expert, pipeline, data]", taken.find("use-tp-pp-dp-mapping"));
  if (const auto elements = taken.integer("ddp-bucket-size");
      elements && *elements > 0 && *elements < 1'000'000'000'000) {
    const bool full =
        taken.value_of("training.grad_dtype") != "bf16" && taken.value_of("training.grad_dtype") != "fp16";
    taken.put("plan.bucket", fmt::format("{}B", *elements * (full ? 4 : 2)), taken.find("ddp-bucket-size"));
  }
  pinned_collectives(taken);
  for (const std::string& line : script.passed_over) taken.ignore(one_line(line));
  for (const char* flag : {"use-mcore-models", "transformer-impl"}) taken.find(flag);
  return taken.finish("megatron", hints, kMegatronProfile);
}

}  // namespace rehearse::launch
