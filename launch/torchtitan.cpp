// See torchtitan.h.
#include "launch/torchtitan.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/document_settings.h"
#include "sim/base/text_check.h"
#include "sim/plan/cosine_end.h"

namespace rehearse::launch {
namespace {

using plan::Plan;
using plan::Precision;
using plan::Recompute;
using plan::Schedule;

struct Flavor {
  const char *preset, *name, *flavor;
  bool gone = false;  // of versions before v0.2.2
};
// torchtitan/models/*/__init__.py; where two presets are of one flavor the first is what an import takes.
constexpr Flavor kFlavors[] = {{"llama3-8b", "llama3", "8B"},
                               {"llama3.1-8b", "llama3", "8B"},
                               {"llama3-70b", "llama3", "70B"},
                               {"llama3.1-70b", "llama3", "70B"},
                               {"llama3-405b", "llama3", "405B"},
                               {"llama2-7b", "llama2", "7B", true},
                               {"llama2-13b", "llama2", "13B", true},
                               {"llama2-70b", "llama2", "70B", true},
                               {"deepseek-v3", "deepseek_v3", "671B"},
                               {"qwen3-0.6b", "qwen3", "0.6B"},
                               {"qwen3-1.7b", "qwen3", "1.7B"},
                               {"qwen3-4b", "qwen3", "4B"},
                               {"qwen3-8b", "qwen3", "8B"},
                               {"qwen3-14b", "qwen3", "14B"},
                               {"qwen3-32b", "qwen3", "32B"},
                               {"qwen3-30b-a3b", "qwen3", "30B-A3B"},
                               {"qwen3-235b-a22b", "qwen3", "235B-A22B"}};

// nullptr: v0.2.2 has none of that preset.
const Flavor* flavor_of(const model::Model& model) {
  const auto found = std::find_if(std::begin(kFlavors), std::end(kFlavors),
                                  [&](const Flavor& f) { return model.name == f.preset && !f.gone; });
  return found == std::end(kFlavors) ? nullptr : &*found;
}

const std::vector<std::pair<std::string_view, std::string_view>> kTitanSchedules = {{"1f1b", "1F1B"},
                                                                                    {"interleaved", "Interleaved1F1B"},
                                                                                    {"gpipe", "GPipe"},
                                                                                    {"zero_bubble_v", "ZBVZeroBubble"},
                                                                                    {"dualpipe_v", "DualPipeV"}};

// A section of the file and its lines, in order.
struct Section {
  std::string name;
  std::vector<std::pair<std::string, std::string>> lines;  // key, value as TOML writes it
};

std::string toml_text(std::string_view text) {
  return fmt::format("\"{}\"", text);
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

Section titan_parallelism(Said& said) {
  const Plan& p = said.scenario().plan;
  for (const char* key : {"plan.zero", "plan.zero_group", "plan.tensor", "plan.pipeline", "plan.context", "plan.expert",
                          "plan.context_kind", "plan.sequence_parallel", "plan.async_tensor_parallel", "plan.schedule",
                          "plan.chunks", "plan.embedding_as_layer"})
    said.said(key);
  Section out{"parallelism", {}};
  const auto add = [&](const char* key, std::string value) { out.lines.emplace_back(key, std::move(value)); };
  // Experts are spread over ranks that FSDP2 shards over (distributed/parallel_dims.py).
  const std::int64_t sharded = p.expert_replicas();
  if (p.zero == 0 && sharded > 1)
    said.left_out("plan.zero", fmt::format("0: FSDP2 shards over the {} ranks that experts are spread over", sharded));
  const std::int64_t replicas = p.zero == 0 ? p.data / sharded : p.replicas;
  add("data_parallel_replicate_degree", fmt::format("{}", replicas));
  add("data_parallel_shard_degree", fmt::format("{}", p.data / replicas));
  if (p.zero > 0 || sharded > 1) add("fsdp_reshard_after_forward", toml_text(p.zero == 3 ? "always" : "never"));
  // With stages gradients are whole until the last backward, which reduces them (take_titan_parallelism).
  if (p.zero == 1 && p.pipeline == 1) said.left_out("plan.zero", "1: FSDP2 that keeps what it gathered is ZeRO-2");
  if (p.zero == 2 && p.pipeline > 1) said.left_out("plan.zero", "2: FSDP2 with stages keeps gradients whole, ZeRO-1");
  if (p.zero == 0 && p.context > 1)
    said.left_out("plan.zero", "0: with context parallelism FSDP2 shards over that axis");
  add("tensor_parallel_degree", fmt::format("{}", p.tensor));
  if (p.tensor > 1 && !p.sequence_parallel)
    said.left_out("plan.sequence_parallel", "false: tensor parallelism of torchtitan has it");
  if (p.tensor == 1 && p.sequence_parallel) said.left_out("plan.sequence_parallel", "true, without tensor parallelism");
  if (p.async_tensor_parallel && said.scenario().framework.name != "torch-fsdp2-compile")
    said.left_out("plan.async_tensor_parallel", "true: torchtitan has it with compile alone");
  else if (p.async_tensor_parallel)
    add("enable_async_tensor_parallel", "true");
  add("pipeline_parallel_degree", fmt::format("{}", p.pipeline));
  if (p.pipeline > 1) {
    const std::string schedule = said.value("plan.schedule");
    const auto known = std::find_if(kTitanSchedules.begin(), kTitanSchedules.end(),
                                    [&](const auto& one) { return one.first == schedule; });
    if (known == kTitanSchedules.end())
      said.left_out("plan.schedule", schedule + ": none of torch.distributed.pipelining's that a file names");
    else
      add("pipeline_parallel_schedule", toml_text(known->second));
    if (p.schedule == Schedule::interleaved && p.chunks != 2) {
      said.left_out("plan.chunks", fmt::format("{}: a rank has two stages unless layers are counted", p.chunks));
      said.left_out("plan.layers_per_stage", "of these chunks");
    }
    add("pipeline_parallel_microbatch_size", fmt::format("{}", p.micro_batch));
    for (const char* key : {"pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"})
      add(key, p.embedding_as_layer ? "1" : "0");
  }
  add("context_parallel_degree", fmt::format("{}", p.context));
  if (p.context > 1) {
    if (p.context_kind == plan::ContextKind::all_to_all)
      said.left_out("plan.context_kind", "all_to_all: keys and values are gathered or go round");
    else
      add("context_parallel_rotate_method",
          toml_text(p.context_kind == plan::ContextKind::ring ? "alltoall" : "allgather"));
  }
  if (p.expert > 1) add("expert_parallel_degree", fmt::format("{}", p.expert));
  if (p.expert > 1 && p.tensor > 1) {
    said.said("plan.expert_tensor");
    add("expert_tensor_parallel_degree", fmt::format("{}", p.whole_experts() ? 1 : p.tensor));
  }
  return out;
}

Section titan_checkpoint(Said& said) {
  const Plan& p = said.scenario().plan;
  for (const char* key : {"plan.recompute", "plan.recompute_every", "plan.recompute_layers", "plan.recompute_latent",
                          "plan.recompute_norms", "plan.recompute_expert_activation"})
    said.said(key);
  Section out{"activation_checkpoint", {}};
  std::string mode = "none", option;
  if (p.recompute == Recompute::full && p.recompute_every == 1) mode = "full";
  if (p.recompute == Recompute::full && p.recompute_every > 1)
    mode = "selective", option = fmt::format("{}", p.recompute_every);
  if (p.recompute == Recompute::ops) mode = "selective", option = "op";
  if (p.recompute == Recompute::ops && p.recompute_every > 1)
    said.left_out("plan.recompute_every", fmt::format("{}: op by op it is every layer", p.recompute_every));
  if (p.recompute == Recompute::selective)
    said.left_out("plan.recompute", "selective: Megatron-LM's; torchtitan's attention keeps no scores anyway");
  if (p.recompute_layers > 0) said.left_out("plan.recompute_layers", fmt::format("{}: all layers", p.recompute_layers));
  for (const auto& [key, is] : {std::pair{"plan.recompute_latent", p.recompute_latent},
                                {"plan.recompute_norms", p.recompute_norms},
                                {"plan.recompute_expert_activation", p.recompute_expert_activation}})
    if (is) said.left_out(key, "true: no field for it");
  out.lines.emplace_back("mode", toml_text(mode));
  if (!option.empty()) out.lines.emplace_back("selective_ac_option", toml_text(option));
  return out;
}

Section titan_training(Said& said) {
  const plan::Scenario& s = said.scenario();
  const plan::Training& t = s.training;
  for (const char* key : {"plan.micro_batch", "training.global_batch", "training.seq_len", "training.clip",
                          "training.seed", "training.deterministic", "training.precision", "training.reduce_dtype",
                          "training.grad_dtype", "plan.offload_optimizer", "plan.offload_parameters"})
    said.said(key);
  Section out{"training", {}};
  const std::int64_t local = s.plan.pipeline > 1 ? t.global_batch / s.plan.data : s.plan.micro_batch;
  out.lines = {{"local_batch_size", fmt::format("{}", local)},
               {"global_batch_size", fmt::format("{}", t.global_batch)},
               {"seq_len", fmt::format("{}", t.seq_len)},
               {"max_norm", toml_number(t.clip)},
               {"seed", fmt::format("{}", t.seed)}};
  if (t.deterministic) out.lines.emplace_back("deterministic", "true");
  if (s.plan.offload_parameters) out.lines.emplace_back("enable_cpu_offload", "true");
  if (s.plan.offload_optimizer && !s.plan.offload_parameters)
    said.left_out("plan.offload_optimizer", "true: enable_cpu_offload is of parameters too (plan.offload_parameters)");
  const bool fp32 = t.precision == Precision::fp32;
  out.lines.emplace_back("mixed_precision_param", toml_text(fp32 ? "float32" : "bfloat16"));
  out.lines.emplace_back("mixed_precision_reduce", toml_text("float32"));
  if (t.precision == Precision::fp16) said.left_out("training.precision", "fp16: bf16 or fp32");
  if (t.precision == Precision::nvfp4) said.left_out("training.precision", "nvfp4: 8 bits at least");
  if (t.reduce_dtype != Precision::fp32)
    said.left_out("training.reduce_dtype", said.value("training.reduce_dtype") + ": gradients are reduced in fp32");
  if (t.grad_dtype != Precision::fp32)
    said.left_out("training.grad_dtype", said.value("training.grad_dtype") + ": gradients are kept in fp32");
  return out;
}

std::vector<Section> titan_float8(Said& said) {
  const plan::Training& t = said.scenario().training;
  for (const char* key :
       {"training.fp8_recipe", "training.fp8_params", "training.fp8_transposes", "training.fp8_bf16_layers"})
    said.said(key);
  if (!t.eight_bits()) return {};
  if (t.fp8_bf16_layers > 0)
    said.left_out("training.fp8_bf16_layers",
                  fmt::format("{}: filter_fqns names layers of a model", t.fp8_bf16_layers));
  if (!t.fp8_transposes) said.left_out("training.fp8_transposes", "false: the GPU's generation decides it");
  if (t.fp8_recipe == plan::Fp8Recipe::mxfp8) {
    if (t.fp8_params) said.left_out("training.fp8_params", "true: gathers of scales of blocks are in 16 bits");
    return {{"quantize.linear.mx", {{"recipe_name", toml_text("mxfp8")}, {"filter_fqns", "[\"output\"]"}}}};
  }
  if (t.fp8_rows())
    return {{"quantize.linear.float8", {{"recipe_name", toml_text("rowwise")}, {"filter_fqns", "[\"output\"]"}}}};
  if (t.fp8_recipe != plan::Fp8Recipe::tensorwise)
    said.left_out("training.fp8_recipe", said.value("training.fp8_recipe") + ": tensorwise, rowwise or mxfp8");
  return {{"quantize.linear.float8",
           {{"enable_fsdp_float8_all_gather", t.fp8_params ? "true" : "false"}, {"filter_fqns", "[\"output\"]"}}}};
}

std::vector<Section> titan_sections(Said& said) {
  const plan::Scenario& s = said.scenario();
  const plan::Training& t = s.training;
  std::vector<Section> all;
  const Flavor* flavor = flavor_of(s.model);
  Section model{"model", {}};
  if (flavor != nullptr) model.lines = {{"name", toml_text(flavor->name)}, {"flavor", toml_text(flavor->flavor)}};
  if (t.eight_bits())
    model.lines.emplace_back("converters", t.fp8_recipe == plan::Fp8Recipe::mxfp8 ? "[\"quantize.linear.mx\"]"
                                                                                  : "[\"quantize.linear.float8\"]");
  all.push_back(model);
  Section optimizer{"optimizer", {}};
  for (const char* key : {"training.optimizer", "training.momentum", "training.lr", "training.betas", "training.eps",
                          "training.weight_decay", "training.warmup_steps", "training.lr_schedule"})
    said.said(key);
  if (t.optimizer == plan::OptimizerKind::sgd)
    said.left_out("training.optimizer", "sgd: Adam or AdamW"), said.left_out("training.momentum", "of sgd");
  if (t.optimizer == plan::OptimizerKind::adafactor) said.left_out("training.optimizer", "adafactor: Adam or AdamW");
  if (t.optimizer == plan::OptimizerKind::muon) said.left_out("training.optimizer", "muon: Adam or AdamW");
  if (t.optimizer == plan::OptimizerKind::lamb) said.left_out("training.optimizer", "lamb: Adam or AdamW");
  optimizer.lines = {{"name", toml_text("AdamW")},    {"lr", toml_number(t.lr)},
                     {"beta1", toml_number(t.beta1)}, {"beta2", toml_number(t.beta2)},
                     {"eps", toml_number(t.eps)},     {"weight_decay", toml_number(t.weight_decay)}};
  all.push_back(optimizer);
  Section rate{"lr_scheduler", {{"warmup_steps", fmt::format("{}", t.warmup_steps)}}};
  if (t.lr_schedule == "cosine") {
    rate.lines.emplace_back("decay_type", toml_text("cosine"));
    rate.lines.emplace_back("min_lr_factor", toml_number(plan::kCosineEnd));
  } else {
    rate.lines.emplace_back("decay_ratio", "0.0");
  }
  all.push_back(rate);
  all.push_back(titan_training(said));
  all.push_back(titan_parallelism(said));
  all.push_back(titan_checkpoint(said));
  all.push_back({"compile", {{"enable", s.framework.name == "torch-fsdp2-compile" ? "true" : "false"}}});
  for (Section& one : titan_float8(said)) all.push_back(std::move(one));
  return all;
}

const char* titan_profile(bool compiled) {
  return compiled ? "torch-fsdp2-compile" : "torch-fsdp2";
}

void check_titan_model(const plan::Scenario& s) {
  if (s.model.family != model::Family::llama && s.model.family != model::Family::moe &&
      s.model.family != model::Family::gpt)
    throw InputError(Diagnostic{
        s.file, 0, 0, "model",
        fmt::format("{} is no model of tokens that torchtitan trains, expected gpt, llama or moe", s.model.name),
        "--to torchrun starts a script of your own"});
}

std::string titan_head(const Exported& out, const plan::Scenario& s, const char* for_what) {
  std::string text = "# " + one_line(s.name) + fmt::format("\n# Made by rehearse export, for {}.\n", for_what);
  if (!out.left_out.empty()) text += "# Not said here, for lack of a field:\n";
  for (const LeftOut& one : out.left_out) text += fmt::format("#   {}: {}\n", one.key, one_line(one.why));
  return text;
}

std::vector<std::string> titan_run(Said& said, std::int64_t gpus_a_node, const char* arguments) {
  const Nodes nodes = nodes_of(said.scenario().cluster.gpus, gpus_a_node);
  std::string environment = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  for (const std::string& line : nccl_variables(said)) environment += " " + line;
  return {
      fmt::format("{} torchrun --nnodes {} --nproc-per-node {} --rdzv-backend c10d --rdzv-endpoint HOST:29500 "
                  "-m torchtitan.train {}",
                  environment, nodes.nodes, nodes.a_node, arguments)};
}

}  // namespace

Exported export_torchtitan_toml(const plan::Scenario& s, std::int64_t gpus_a_node) {
  check_titan_model(s);
  Said said(s, titan_profile(s.framework.name == "torch-fsdp2-compile"));
  const std::vector<Section> sections = titan_sections(said);
  Exported out;
  out.run = titan_run(said, gpus_a_node, "--job.config_file FILE");
  out.left_out = said.finish();
  out.text = titan_head(out, s, "torchtitan v0.2.2");
  for (const Section& one : sections) {
    out.text += fmt::format("\n[{}]\n", one.name);
    for (const auto& [key, value] : one.lines) out.text += fmt::format("{} = {}\n", key, value);
  }
  if (flavor_of(s.model) == nullptr) out.notes.push_back(one_line(s.model.name) + " has no flavor: [model] is yours");
  return out;
}

Exported export_torchtitan(const plan::Scenario& s, std::int64_t gpus_a_node) {
  check_titan_model(s);
  Said said(s, titan_profile(s.framework.name == "torch-fsdp2-compile"));
  const std::vector<Section> sections = titan_sections(said);
  Exported out;
  out.run = titan_run(said, gpus_a_node, "--module YOURS --config YOURS");
  out.left_out = said.finish();
  out.text =
      titan_head(out, s, "torchtitan of August 2026 (b5bcd76): lines for the function that returns its configuration");
  const std::int64_t samples = s.plan.micro_batch, tokens = s.training.seq_len;
  for (const Section& one : sections) {
    if (one.name == "model" || one.name.starts_with("quantize")) continue;
    for (const auto& [key, value] : one.lines) {
      std::string name = key, text = value == "true" ? "True" : value == "false" ? "False" : value;
      if (key == "local_batch_size")
        name = "num_tokens_per_microbatch_per_dp_rank", text = fmt::format("{} * {}", samples, tokens);
      if (key == "global_batch_size")
        name = "num_tokens_per_train_step", text = fmt::format("{} * {}", s.training.global_batch, tokens);
      if (key == "seq_len") name = "max_context_length";
      if (key == "seed" || key == "deterministic") continue;  // below
      if (key == "pipeline_parallel_microbatch_size")
        name = "num_pp_microbatches", text = fmt::format("{}", s.training.micro_batches(s.plan));
      out.text += fmt::format("config.{}.{} = {}\n", one.name, name, text);
    }
  }
  out.text += fmt::format("config.debug.seed = {}\n", s.training.seed);
  if (s.training.deterministic) out.text += "config.debug.deterministic = True\n";
  out.notes = {"model and 8-bit products are parts of the function that returns the configuration"};
  if (s.training.eight_bits())
    out.notes.push_back("8-bit products: a converter of the configuration, " + said.value("training.fp8_recipe"));
  return out;
}

bool is_torchtitan(const std::vector<Setting>& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const Setting& s) {
    return s.key.starts_with("parallelism.") || s.key == "training.seq_len" ||
           s.key.starts_with("activation_checkpoint.");
  });
}

namespace {

void take_titan_parallelism(Taken& taken, const ImportHints& hints) {
  const auto degree = [&](const char* key) {
    const auto value = taken.integer(key);
    if (value && (*value < 1 || *value > 1'000'000)) {
      taken.error(*taken.find(key), fmt::format("expected 1 to 1,000,000, found {}", *value));
      return std::int64_t{1};
    }
    return value.value_or(1);
  };
  const std::int64_t tensor = degree("parallelism.tensor_parallel_degree");
  const std::int64_t pipeline = degree("parallelism.pipeline_parallel_degree");
  const std::int64_t context = degree("parallelism.context_parallel_degree");
  const std::int64_t replicate = degree("parallelism.data_parallel_replicate_degree");
  const Setting* sharded = taken.find("parallelism.data_parallel_shard_degree");
  std::int64_t shard = taken.integer("parallelism.data_parallel_shard_degree").value_or(-1);
  if (shard < -1 || shard == 0 || shard > 1'000'000)
    return taken.error(*sharded, fmt::format("expected -1, or 1 to 1,000,000, found {}", shard));
  double others = 1;
  for (const std::int64_t one : {tensor, pipeline, context, replicate}) others *= static_cast<double>(one);
  if (others * static_cast<double>(std::max<std::int64_t>(shard, 1)) > 1e6) {
    const Setting* at = taken.find("parallelism.tensor_parallel_degree");
    if (at == nullptr) at = sharded;
    if (at == nullptr) at = taken.find("parallelism.data_parallel_replicate_degree");
    if (at != nullptr) taken.error(*at, "more than 1,000,000 ranks in all");
    return;
  }
  const auto product = static_cast<std::int64_t>(others);
  std::int64_t gpus = hints.gpus;
  if (shard > 0 && gpus == 0) {
    gpus = product * shard;
    taken.put("cluster.gpus", fmt::format("{}", gpus), sharded);
  }
  if (gpus == 0) {
    gpus = product * std::max<std::int64_t>(1, 8 / product);
    taken.put("cluster.gpus", fmt::format("{}", gpus), nullptr);
    taken.assume(fmt::format("{} GPUs: data_parallel_shard_degree is what remains of them (--gpus)", gpus));
  }
  if (shard == -1) shard = std::max<std::int64_t>(1, gpus / product);
  for (const auto& [key, ours] : {std::pair{"parallelism.tensor_parallel_degree", "plan.tensor"},
                                  {"parallelism.pipeline_parallel_degree", "plan.pipeline"},
                                  {"parallelism.context_parallel_degree", "plan.context"},
                                  {"parallelism.expert_parallel_degree", "plan.expert"}})
    if (taken.has(key)) taken.put(ours, fmt::format("{}", degree(key)), taken.find(key));
  const char* expert_tensor = "parallelism.expert_tensor_parallel_degree";
  if (tensor > 1 && degree("parallelism.expert_parallel_degree") > 1) {
    taken.put("plan.expert_tensor", fmt::format("{}", degree(expert_tensor)), taken.find(expert_tensor));
    if (!taken.has(expert_tensor)) taken.assume("expert_tensor_parallel_degree 1, torchtitan's default");
  }
  if (tensor > 1) {
    const bool off =
        taken.has("parallelism.enable_sequence_parallel") && !taken.flag("parallelism.enable_sequence_parallel");
    taken.put("plan.sequence_parallel", off ? "false" : "true", taken.find("parallelism.tensor_parallel_degree"));
    taken.row({"plan.async_tensor_parallel", "parallelism.enable_async_tensor_parallel", Mapped::flag, "false"});
  }
  if (context > 1)
    taken.row({"plan.context_kind",
               "parallelism.context_parallel_rotate_method",
               Mapped::word,
               "all_gather",
               {{"all_gather", "allgather"}, {"ring", "alltoall"}}});
  const std::string policy = taken.text("parallelism.fsdp_reshard_after_forward").value_or("default");
  const Setting* at = taken.find("parallelism.fsdp_reshard_after_forward");
  if (policy != "default" && policy != "always" && policy != "never")
    return taken.error(*at, fmt::format("{} is not known", detail::shown(policy)), "default, always or never");
  // "default" gathers again for backward, but where pipeline stages would each micro-batch.
  const bool keeps = policy == "never" || (policy == "default" && pipeline > 1);
  const bool whole = shard == 1 && context == 1;
  // Of stages only the last backward reduces gradients, which are whole till then (pytorch
  // torch/distributed/pipelining/stage.py, backward_maybe_with_nosync): ZeRO-1.
  taken.put("plan.zero", whole ? "0" : !keeps ? "3" : pipeline > 1 ? "1" : "2", at != nullptr ? at : sharded);
  if (!whole && replicate > 1)
    taken.put("plan.zero_group", fmt::format("{}", shard * context),
              taken.find("parallelism.data_parallel_replicate_degree"));
}

void take_titan_pipeline(Taken& taken) {
  if (taken.value_of("plan.pipeline").empty() || taken.value_of("plan.pipeline") == "1") {
    for (const char* key :
         {"schedule", "microbatch_size", "layers_per_stage", "first_stage_less_layers", "last_stage_less_layers"})
      taken.find(fmt::format("parallelism.pipeline_parallel_{}", key));
    return;
  }
  taken.row({"plan.schedule", "parallelism.pipeline_parallel_schedule", Mapped::word, "1f1b", kTitanSchedules});
  if (taken.value_of("plan.schedule") == "interleaved") {
    taken.put("plan.chunks", "2", taken.find("parallelism.pipeline_parallel_schedule"));
    if (taken.has("parallelism.pipeline_parallel_layers_per_stage")) {
      taken.find("parallelism.pipeline_parallel_layers_per_stage");
      taken.assume("2 stages a rank: pipeline_parallel_layers_per_stage counts a model's layers");
    }
  }
  const auto first = taken.integer("parallelism.pipeline_parallel_first_stage_less_layers");
  const auto last = taken.integer("parallelism.pipeline_parallel_last_stage_less_layers");
  const bool ends = first.value_or(0) == 1 && last.value_or(0) == 1;
  if (ends)
    taken.put("plan.embedding_as_layer", "true", taken.find("parallelism.pipeline_parallel_first_stage_less_layers"));
  if (!first || !last || (!ends && (*first != 0 || *last != 0))) taken.assume("layers split evenly over the stages");
}

void take_titan_training(Taken& taken, const ImportHints& hints) {
  const char* const local_key =
      taken.has("training.local_batch_size") ? "training.local_batch_size" : "training.batch_size";
  const auto local = taken.integer(local_key), global = taken.integer("training.global_batch_size");
  const auto micro = taken.integer("parallelism.pipeline_parallel_microbatch_size");
  const bool stages = !taken.value_of("plan.pipeline").empty() && taken.value_of("plan.pipeline") != "1";
  const Setting* at = taken.find(local_key);
  for (const auto& [value, setting] :
       {std::pair{local, at}, {micro, taken.find("parallelism.pipeline_parallel_microbatch_size")}})
    if (value && (*value < 1 || *value > 1'000'000))
      return taken.error(*setting, fmt::format("expected 1 to 1,000,000, found {}", *value));
  if (stages)
    taken.put("plan.micro_batch", fmt::format("{}", micro.value_or(1)),
              micro ? taken.find("parallelism.pipeline_parallel_microbatch_size") : nullptr);
  else if (local)
    taken.put("plan.micro_batch", fmt::format("{}", *local), at);
  if (global && *global > 0) {
    taken.put("training.global_batch", fmt::format("{}", *global), taken.find("training.global_batch_size"));
  } else if (stages && local) {
    const std::int64_t split =
        std::stoll("0" + taken.value_of("plan.tensor")) > 1 ? std::stoll(taken.value_of("plan.tensor")) : 1;
    const std::int64_t deep = std::stoll(taken.value_of("plan.pipeline"));
    const std::int64_t wide = taken.value_of("plan.context").empty() ? 1 : std::stoll(taken.value_of("plan.context"));
    const std::string all = taken.value_of("cluster.gpus");
    const std::int64_t ranks = hints.gpus > 0 ? hints.gpus : all.empty() ? 1 : std::stoll(all);
    const std::int64_t data = std::max<std::int64_t>(1, ranks / (split * deep * wide));
    taken.put("training.global_batch", fmt::format("{}", data * *local), at);
  }
  taken.row({"training.seq_len", "training.seq_len"});
  taken.row({"training.clip", "training.max_norm", Mapped::number});
  taken.row({"training.seed", taken.has("debug.seed") ? "debug.seed" : "training.seed"});
  if (taken.flag("training.enable_cpu_offload") && taken.value_of("plan.zero") != "0") {
    const Setting* from = taken.find("training.enable_cpu_offload");
    taken.put("plan.offload_optimizer", "true", from);
    if (taken.value_of("plan.zero") == "3")
      taken.put("plan.offload_parameters", "true", from);
    else
      taken.assume("parameters on devices: those on hosts are of ZeRO-3 alone (plan.offload_parameters)");
  }
  for (const char* key : {"debug.deterministic", "training.deterministic"})
    if (taken.text(key).value_or("false") == "true") taken.put("training.deterministic", "true", taken.find(key));
}

void take_titan_precision(Taken& taken) {
  const std::string param = taken.text("training.mixed_precision_param").value_or("bfloat16");
  const Setting* at = taken.find("training.mixed_precision_param");
  if (param != "bfloat16" && param != "float32")
    return taken.error(*at, fmt::format("{} is not known", detail::shown(param)), "bfloat16 or float32");
  bool eight = false, blocks = false;
  const Setting* converters = taken.find("model.converters");
  if (converters != nullptr)
    for (const std::string& one : converters->values) {
      eight = eight || one.find("float8") != std::string::npos;
      blocks = blocks || one.find("mx") != std::string::npos;
      if (one.find("float8") == std::string::npos && one.find("mx") == std::string::npos && !one.empty())
        taken.ignore(fmt::format("model.converters {}", one_line(one)));
    }
  if (!eight && !blocks) {
    taken.put("training.precision", param == "float32" ? "fp32" : "bf16", at);
  } else {
    taken.put("training.precision", "fp8", converters);
    taken.put("training.fp8_recipe", blocks ? "mxfp8" : "tensorwise", converters);
    for (const char* prefix : {"quantize.linear.float8.", "float8."}) {
      const std::string gather = std::string(prefix) + "enable_fsdp_float8_all_gather";
      if (taken.has(gather))
        taken.put("training.fp8_params", taken.flag(gather) ? "true" : "false", taken.find(gather));
      const auto recipe = taken.text(std::string(prefix) + "recipe_name");
      const bool rows = recipe && (*recipe == "rowwise" || *recipe == "rowwise_with_gw_hp");
      if (blocks || !recipe) continue;
      if (rows) taken.put("training.fp8_recipe", "rowwise", taken.find(std::string(prefix) + "recipe_name"));
      if (*recipe == "rowwise_with_gw_hp")
        taken.assume("rowwise: weights' gradients are products in 8 bits too, not in 16 bits (rowwise_with_gw_hp)");
      else if (!rows && *recipe != "tensorwise")
        taken.assume(fmt::format("scales of tensors, not {}", one_line(*recipe)));
    }
    for (const char* key : {"quantize.linear.mx.recipe_name", "mx.recipe_name"}) taken.find(key);
  }
  if (const auto reduce = taken.text("training.mixed_precision_reduce")) {
    const Setting* from = taken.find("training.mixed_precision_reduce");
    if (*reduce != "float32" && *reduce != "bfloat16")
      return taken.error(*from, fmt::format("{} is not known", detail::shown(*reduce)), "float32 or bfloat16");
    taken.put("training.reduce_dtype", *reduce == "float32" || param == "float32" ? "fp32" : "bf16", from);
  }
  taken.put("training.grad_dtype", "fp32", nullptr);
}

void take_titan_checkpoint(Taken& taken) {
  const std::string mode = taken.text("activation_checkpoint.mode").value_or("selective");
  const Setting* at = taken.find("activation_checkpoint.mode");
  if (mode == "none" || mode == "full") {
    taken.find("activation_checkpoint.selective_ac_option");
    return taken.put("plan.recompute", mode, at);
  }
  if (mode != "selective") {
    if (mode == "memory_budget") return taken.error(*at, "memory_budget is not available", "none, selective or full");
    return taken.error(*at, fmt::format("{} is not known", detail::shown(mode)), "none, selective or full");
  }
  const std::string option = taken.text("activation_checkpoint.selective_ac_option").value_or("");
  const Setting* named = taken.find("activation_checkpoint.selective_ac_option");
  if (option.empty()) taken.assume("selective_ac_option op, the default of v0.2.2");
  if (option.empty() || option == "op") return taken.put("plan.recompute", "ops", named != nullptr ? named : at);
  if (option.find_first_not_of("0123456789") != std::string::npos || option.size() > 6)
    return taken.error(*named, fmt::format("expected op or a number, found {}", detail::shown(option)));
  taken.put("plan.recompute", "full", named);
  taken.put("plan.recompute_every", option, named);
}

}  // namespace

Imported import_torchtitan(const std::string& file, const std::string& text, const ImportHints& hints) {
  Taken taken(file, toml_settings(file, text), "");
  if (hints.model.empty()) {
    const std::string name = taken.text("model.name").value_or(""), flavor = taken.text("model.flavor").value_or("");
    const auto found = std::find_if(std::begin(kFlavors), std::end(kFlavors),
                                    [&](const Flavor& f) { return name == f.name && flavor == f.flavor; });
    if (found != std::end(kFlavors))
      taken.put("model", found->preset, taken.find("model.flavor"));
    else if (const Setting* at = taken.find(taken.has("model.flavor") ? "model.flavor" : "model.name"); at != nullptr)
      taken.error(*at,
                  fmt::format("there is no preset of torchtitan's {} {}", detail::shown(name), detail::shown(flavor)),
                  "name the model with --model");
  }
  take_titan_parallelism(taken, hints);
  take_titan_pipeline(taken);
  taken.stop_if_wrong();
  take_titan_training(taken, hints);
  take_titan_precision(taken);
  take_titan_checkpoint(taken);
  taken.row({"training.lr", "optimizer.lr", Mapped::number});
  taken.row({"training.eps", "optimizer.eps", Mapped::number});
  taken.row({"training.weight_decay", "optimizer.weight_decay", Mapped::number});
  if (taken.has("optimizer.beta1") || taken.has("optimizer.beta2"))
    taken.put("training.betas",
              fmt::format("[{}, {}]", taken.number("optimizer.beta1").value_or(0.9),
                          taken.number("optimizer.beta2").value_or(0.95)),
              taken.find(taken.has("optimizer.beta1") ? "optimizer.beta1" : "optimizer.beta2"));
  if (const auto name = taken.text("optimizer.name"); name && *name != "AdamW" && *name != "Adam")
    taken.assume(fmt::format("adamw, not {}", one_line(*name)));
  taken.row({"training.warmup_steps", "lr_scheduler.warmup_steps"});
  if (taken.text("lr_scheduler.decay_type").value_or("") == "cosine") {
    taken.put("training.lr_schedule", "cosine", taken.find("lr_scheduler.decay_type"));
    const auto end = taken.number("lr_scheduler.min_lr_factor");
    if (end.value_or(0) != plan::kCosineEnd)
      taken.assume(fmt::format("a cosine that ends at {} of the learning rate, not at lr_scheduler.min_lr_factor {}{}",
                               plan::kCosineEnd, end.value_or(0), end ? "" : ", torchtitan's default"));
  }
  taken.find("lr_scheduler.decay_ratio");
  const bool compiled = taken.flag("compile.enable") || taken.flag("training.compile");
  // torchtitan/distributed/tensor_parallel.py, maybe_enable_async_tp.
  if (!compiled && taken.value_of("plan.async_tensor_parallel") == "true")
    taken.error(*taken.find("parallelism.enable_async_tensor_parallel"), "torchtitan has it with compile alone",
                "[compile] enable = true");
  return taken.finish("torchtitan-toml", hints, titan_profile(compiled));
}

}  // namespace rehearse::launch
