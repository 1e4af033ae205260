// Megatron-LM's arguments as plans; see megatron.h. The model is in megatron_fields.cpp, the way back in megatron.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/megatron.h"
#include "sim/base/text_check.h"
#include "sim/plan/cosine_end.h"

namespace rehearse::launch {
// A capacity needs all-to-all (megatron/core/transformer/transformer_config.py).
void take_default_dispatch(Taken& taken) {
  if (taken.has("moe-token-dispatcher-type") || !taken.has_experts() ||
      taken.integer("expert-model-parallel-size").value_or(1) < 2 || taken.has("moe-expert-capacity-factor"))
    return;
  taken.put("plan.expert_dispatch", "all_gather", nullptr);
  taken.assume("moe-token-dispatcher-type allgather, Megatron-LM's default");
}

bool is_megatron(const formats::ShellScript& script) {
  const std::vector<Setting> settings = settings_of(script);
  const auto any = [&](std::initializer_list<std::string_view> keys) {
    return std::any_of(settings.begin(), settings.end(),
                       [&](const Setting& s) { return std::find(keys.begin(), keys.end(), s.key) != keys.end(); });
  };
  const auto is_program = [](const formats::ShellWord& word) { return word.text.ends_with("pretrain_gpt.py"); };
  return any({"tensor-model-parallel-size", "num-layers", "micro-batch-size", "pipeline-model-parallel-size"}) ||
         (any({"hidden-size"}) && any({"num-attention-heads"})) ||
         std::any_of(script.commands.begin(), script.commands.end(), [&](const formats::ShellCommand& command) {
           return std::any_of(command.words.begin(), command.words.end(), is_program);
         });
}

namespace {

// For products; what is out of range the scenario's reader refuses.
std::int64_t degree_of(Taken& taken, const char* key) {
  return std::clamp<std::int64_t>(taken.integer(key).value_or(1), 1, 1'000'000);
}

// Stages of the embedding, of modules or of the loss alone, which no plan here has but at its ends with modules: each
// gets a layer of the nearest stage that has two. Which ones, from 1; "": none.
std::string fill_empty_stages(std::vector<std::int64_t>& layers, bool ends_may_be_empty) {
  const auto count = static_cast<std::int64_t>(layers.size());
  std::string filled;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t& own = layers[static_cast<std::size_t>(i)];
    if (own > 0 || (ends_may_be_empty && (i == 0 || i + 1 == count))) continue;
    for (std::int64_t away = 1; away < count && own == 0; ++away)
      for (const std::int64_t from : {i - away, i + away}) {
        if (own > 0 || from < 0 || from >= count || layers[static_cast<std::size_t>(from)] < 2) continue;
        --layers[static_cast<std::size_t>(from)], ++own;
        filled += fmt::format("{}{}", filled.empty() ? "" : ", ", i + 1);
      }
  }
  return filled;
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
    // Embedding and loss are counted where --account-for-... says so (megatron/training/arguments.py).
    std::int64_t all = taken.integer("num-layers").value_or(0);
    for (const char* end : {"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"})
      if (all > 0 && taken.flag(end)) ++all;
    const std::int64_t parts = *layers * stages;
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
  if (const auto text = taken.text("pipeline-model-parallel-layout")) {
    const Setting* at = taken.find("pipeline-model-parallel-layout");
    auto layout = layers_of_layout(*text);
    const auto parts = layout ? static_cast<std::int64_t>(layout->layers.size()) : 0;
    if (!layout || parts % stages != 0) {
      taken.error(*at,
                  fmt::format("{} is not available for {} stages{}", detail::shown(*text), stages,
                              layout ? fmt::format(": it has {} parts", parts) : ""),
                  "expected parts divided by |, as in Et*3|(tt|)*2t*3L: E first, L last, t a layer, m a module of "
                  "multi-token prediction behind all layers");
    } else if (from != nullptr && parts != stages * chunks) {
      taken.error(*at, fmt::format("has {} parts, expected {} stages x {} virtual ones", parts, stages, chunks),
                  fmt::format("--{} {}, or a layout of {}", from->key, parts / stages, stages * chunks));
    } else {
      const std::string modules = taken.value_of("model.mtp_depth");
      const std::string filled = fill_empty_stages(layout->layers, !modules.empty() && modules != "0");
      if (!filled.empty())
        taken.assume(
            fmt::format("a layer of the nearest stage on stage {} of --pipeline-model-parallel-layout, which "
                        "has none there: each stage has one here (plan.layers_per_stage)",
                        filled));
      std::string list;
      for (const std::int64_t n : layout->layers) list += fmt::format("{}{}", list.empty() ? "" : ", ", n);
      taken.put("plan.layers_per_stage", "[" + list + "]", at);
      chunks = parts / stages;
      if (layout->modules_apart)
        taken.assume(
            "the modules of multi-token prediction on the last stage, with the loss, not on one before it as in "
            "--pipeline-model-parallel-layout");
    }
    from = at;
  }
  const auto first = taken.integer("decoder-first-pipeline-num-layers");
  const auto last = taken.integer("decoder-last-pipeline-num-layers");
  if ((first || last) && stages > 1 && chunks > 1)
    taken.not_modelled(
        "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers with several chunks a stage: "
        "layers "
        "are spread evenly (plan.layers_per_stage says another split)");
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
  if (chunks <= 1) {
    if (from != nullptr && from->key != "pipeline-model-parallel-layout") taken.put("plan.chunks", "1", from);
    return;
  }
  taken.put("plan.schedule", "interleaved", from);
  taken.put("plan.chunks", fmt::format("{}", chunks), from);
}

// What megatron/training/arguments.py, validate_args, asserts of --use-torch-fsdp2.
void refuse_with_torch_fsdp2(Taken& taken, const Setting& at) {
  for (const char* key : {"pipeline-model-parallel-size", "expert-model-parallel-size"})
    if (const std::int64_t degree = degree_of(taken, key); degree > 1)
      taken.error(at, fmt::format("Megatron-LM refuses it with --{} {}", key, degree),
                  fmt::format("--use-megatron-fsdp, or --{} 1", key));
  if (taken.flag("use-distributed-optimizer"))
    taken.error(at, "Megatron-LM refuses it with --use-distributed-optimizer", "one of them");
}

void take_zero(Taken& taken) {
  const bool optimizer = taken.flag("use-distributed-optimizer");
  const Setting* at = taken.find("use-distributed-optimizer");
  std::string zero = optimizer ? "1" : "0";
  const bool own = taken.flag("use-megatron-fsdp"), torch = taken.flag("use-torch-fsdp2");
  if (own || torch || taken.flag("use-custom-fsdp")) {
    at = taken.find(own ? "use-megatron-fsdp" : torch ? "use-torch-fsdp2" : "use-custom-fsdp");
    if (torch) refuse_with_torch_fsdp2(taken, *at);
    taken.find("ckpt-format");  // the one that it takes
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

// NeMo's and Megatron-Bridge's launchers have a name of their own for it.
void take_activation_offload(Taken& taken) {
  bool off = false;
  for (const char* flag : {"cpu-offloading", "cpu-offloading-activations"})
    off = (taken.has(flag) && !taken.flag(flag)) || off;
  for (const char* flag : {"cpu-offloading-num-layers", "activation-offload-layers"}) {
    const auto layers = taken.integer(flag);
    if (layers && *layers > 0 && !off) taken.put("plan.offload_layers", fmt::format("{}", *layers), taken.find(flag));
  }
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
        else if (one == "layernorm" && !taken.has_experts() && !taken.has_latents())
          taken.ignore("--recompute-modules layernorm: norms of dense layers are inside the products behind them");
        else if (const auto found = known.find(one); found != known.end())
          keys.push_back(found->second);
        else
          taken.not_modelled(fmt::format("--recompute-modules {}, which no key has", one_line(one)));
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
  const auto on = [&](const char* key) { return taken.flag(key) ? taken.find(key) : nullptr; };
  const Setting *fp16 = on("fp16"), *bf16 = on("bf16"), *fp8 = on("fp8-format"), *fp4 = on("fp4-format");
  taken.find("fp4-recipe");
  if (const Setting* hybrid = on("fp8-hybrid"); hybrid != nullptr) fp8 = hybrid;
  const bool half = fp16 != nullptr, brain = bf16 != nullptr;
  if (half && brain)  // validate_args: "assert not args.bf16"
    return taken.error(*fp16, fmt::format("does not go with --bf16 of line {}", bf16->line), "one of them");
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

void take_optimizer_offload(Taken& taken) {
  const auto share = taken.number("optimizer-offload-fraction");
  if (!taken.flag("optimizer-cpu-offload") || (share && *share == 0)) return;
  taken.put("plan.offload_optimizer", "true", taken.find("optimizer-cpu-offload"));
  if (share && *share < 1) taken.assume(fmt::format("all of the optimizer's states on hosts, not {} of them", *share));
}

void take_optimizer(Taken& taken) {
  taken.row({"training.optimizer",
             "optimizer",
             Mapped::word,
             "adamw",
             {{"adamw", "adam"}, {"sgd", "sgd"}, {"muon", "muon"}, {"muon", "dist_muon"}}});
  // What stands in no file is as megatron/training/arguments.py has it, its _add_..._args.
  std::string usual;
  const auto absent = [&](const char* flag, const char* value) {
    if (taken.has(flag)) return false;
    usual += fmt::format("{}--{} {}", usual.empty() ? "" : ", ", flag, value);
    return true;
  };
  if (taken.value_of("training.optimizer") == "sgd") {
    taken.row({"training.momentum", "sgd-momentum", Mapped::number, "0.9"});
    absent("sgd-momentum", "0.9");
  } else {
    const double first = taken.number("adam-beta1").value_or(0.9), second = taken.number("adam-beta2").value_or(0.999);
    taken.put("training.betas", fmt::format("[{}, {}]", first, second),
              taken.find(taken.has("adam-beta1") ? "adam-beta1" : "adam-beta2"));
    absent("adam-beta1", "0.9");
    absent("adam-beta2", "0.999");
  }
  if (absent("weight-decay", "0.01")) taken.put("training.weight_decay", "0.01", nullptr);
  if (absent("seed", "1234")) taken.put("training.seed", "1234", nullptr);
  if (taken.value_of("training.precision") == "fp16") {
    if (absent("initial-loss-scale", "4294967296")) taken.put("training.loss_scale", "4294967296", nullptr);
    if (absent("loss-scale-window", "1000")) taken.put("training.loss_scale_interval", "1000", nullptr);
  }
  if (!usual.empty()) taken.assume(usual + ", Megatron-LM's defaults");
  taken.row({"training.eps", "adam-eps", Mapped::number});
  take_optimizer_offload(taken);
  taken.flag("use-precision-aware-optimizer");
  const std::string average = taken.text("exp-avg-dtype").value_or("fp32"),
                    square = taken.text("exp-avg-sq-dtype").value_or("fp32");
  if (average == "bf16" && square == "bf16") taken.put("training.moments", "bf16", taken.find("exp-avg-dtype"));
  if ((average == "bf16") != (square == "bf16") || average == "fp8" || average == "fp16")
    taken.ignore(fmt::format("--exp-avg-dtype {} and --exp-avg-sq-dtype {}, which no key has together",
                             one_line(average), one_line(square)));
}

// Of a cosine: where it ends, by default at 0 (megatron/training/arguments.py, _add_learning_rate_args).
void take_cosine_end(Taken& taken) {
  if (taken.value_of("training.lr_schedule") != "cosine") return;
  const auto least = taken.number("min-lr"), lr = taken.number("lr");
  const double ours = lr.value_or(0) * plan::kCosineEnd;
  if (least && lr && std::abs(*least - ours) <= 1e-9 * ours) return;
  taken.assume(fmt::format("a cosine that ends at {} of the learning rate, not at {}", plan::kCosineEnd,
                           least ? fmt::format("--min-lr {}", *least) : "0, as without --min-lr"));
}

void take_expert_plan(Taken& taken) {
  const std::string kind = taken.text("moe-token-dispatcher-type").value_or("");
  const bool deep = taken.flag("moe-enable-deepep") || taken.has("moe-flex-dispatcher-backend");
  taken.find("moe-flex-dispatcher-backend");
  if (kind == "flex" && deep) taken.put("plan.expert_dispatch", "forwarding", taken.find("moe-token-dispatcher-type"));
  if (kind == "allgather") taken.put("plan.expert_dispatch", "all_gather", taken.find("moe-token-dispatcher-type"));
  if (kind == "alltoall") taken.put("plan.expert_dispatch", "all_to_all", taken.find("moe-token-dispatcher-type"));
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

// Transformer Engine's grouped MLP in one kernel, of routed experts in mxfp8; its operations are fused by the flag, and
// the kernel is taken where the variable says so (NVIDIA-NeMo/Megatron-Bridge, recipes of Qwen3 and Qwen3.5 with both).
void take_fused_experts(Taken& taken) {
  const bool operations = taken.flag("use-transformer-engine-op-fuser");
  const bool kernel = taken.flag("NVTE_CUTEDSL_FUSED_GROUPED_MLP");
  // --deterministic-mode asks for it.
  taken.find("NVTE_ALLOW_NONDETERMINISTIC_ALGO");
  if (!operations || !kernel) return;
  const Setting* at = taken.find("use-transformer-engine-op-fuser");
  if (taken.has_experts() && taken.value_of("training.fp8_recipe") == "mxfp8")
    taken.put("plan.fused_experts", "true", at);
  else
    taken.ignore("NVTE_CUTEDSL_FUSED_GROUPED_MLP: the kernel is of experts in mxfp8");
}

// --cuda-graph-scope full_iteration of Megatron-Core 0.15 became an --cuda-graph-impl of its own later; other scopes
// are parts of layers, and listed as not modelled.
void take_cuda_graphs(Taken& taken) {
  taken.row({"plan.cuda_graphs",
             "cuda-graph-impl",
             Mapped::word,
             "none",
             {{"none", "none"}, {"layer", "local"}, {"layer", "transformer_engine"}, {"step", "full_iteration"}}});
  const Setting* scope = taken.peek("cuda-graph-scope");
  if (scope == nullptr || scope->values.empty()) return;
  const std::string& value = scope->values.front();
  if (value == "full_iteration" && taken.value_of("plan.cuda_graphs") == "layer")
    taken.put("plan.cuda_graphs", "step", taken.find("cuda-graph-scope"));
  else if (value == "full")
    taken.find("cuda-graph-scope");  // whole layers
}

}  // namespace

void take_megatron_plan(Taken& taken) {
  for (const FieldRow& row : megatron_plan_rows()) taken.row(row);
  take_schedule(taken);
  take_zero(taken);
  take_recompute(taken);
  take_activation_offload(taken);
  take_precision(taken);
  take_expert_plan(taken);
  take_fused_experts(taken);
  take_cuda_graphs(taken);
  if (taken.has_latents()) {
    const bool apart = taken.flag("no-rope-fusion"), fused = taken.flag("enable-experimental") && !apart;
    if (apart || fused)
      taken.put("plan.fused_latent_rope", fused ? "true" : "false",
                taken.find(apart ? "no-rope-fusion" : "enable-experimental"));
  }
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
}

void take_megatron_training(Taken& taken) {
  for (const FieldRow& row : megatron_training_rows()) {
    if (row.theirs == "lr-decay-style") {
      const auto style = taken.text("lr-decay-style");
      if (!style) continue;
      if (*style != "constant" && *style != "cosine") {
        taken.assume(fmt::format("a constant learning rate, not --lr-decay-style {}", one_line(*style)));
        continue;
      }
    }
    taken.row(row);
  }
  take_cosine_end(taken);
}

namespace {

// Which layers are which, Megatron-LM works out of shares or of nothing: all are mixers then
// (megatron/core/ssm/mamba_hybrid_layer_allocation.py).
void refuse_unnamed_mixers(Taken& taken, const formats::ShellScript& script) {
  if (taken.has("hybrid-override-pattern")) return;
  const char* hint = "put --hybrid-override-pattern there, a letter a layer, or name the model with --model";
  for (const char* key : {"hybrid-attention-ratio", "hybrid-mlp-ratio", "is-hybrid-model"})
    if (taken.has(key))
      return taken.error(*taken.find(key), "which layers are mixers is read from --hybrid-override-pattern alone",
                         hint);
  for (const formats::ShellCommand& command : script.commands)
    for (const formats::ShellWord& word : command.words)
      if (word.text.ends_with("pretrain_mamba.py"))
        return taken.error({word.text, {}, word.line, word.column, "", word.text},
                           "trains mixers, of which --hybrid-override-pattern would say the layers", hint);
}

}  // namespace

Imported import_megatron(const std::string& file, const formats::ShellScript& script, const ImportHints& hints) {
  Taken taken(file, settings_of(script), "--");
  taken.know_preset(hints);
  take_ranks(taken, hints, starts_deepspeed(script));
  if (hints.model.empty()) {
    refuse_unnamed_mixers(taken, script);
    take_megatron_model(taken);
  } else if (const auto modules = taken.integer("mtp-num-layers")) {
    taken.put_over("model.mtp_depth", fmt::format("{}", *modules), taken.find("mtp-num-layers"));
    if (const auto weight = taken.number("mtp-loss-scaling-factor"); weight && *modules > 0)
      taken.put_over("model.mtp_loss_weight", fmt::format("{}", *weight), taken.find("mtp-loss-scaling-factor"));
  }
  for (const FieldRow& row : megatron_model_rows()) taken.has(row.theirs);  // so that a slip is told
  take_megatron_plan(taken);
  take_default_dispatch(taken);
  if (!taken.has("lr-decay-style"))
    taken.assume("a constant learning rate, not --lr-decay-style linear, Megatron-LM's default");
  take_megatron_training(taken);
  take_optimizer(taken);
  pinned_collectives(taken);
  for (const std::string& line : script.passed_over) taken.ignore(one_line(line));
  taken.find("use-mcore-models");
  if (taken.text("transformer-impl").value_or("transformer_engine") == "local")
    taken.not_modelled("--transformer-impl local: kernels are Transformer Engine's here");
  return taken.finish("megatron", hints, kMegatronProfile);
}

}  // namespace rehearse::launch
