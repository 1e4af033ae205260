// NVIDIA's NeMo on Megatron-Core: the options of scripts/performance of Megatron-Bridge and NeMo 2 (argument_parser.py
// there), and assignments to a recipe's configuration as Hydra has them, "model.tensor_model_parallel_size=2" of
// Megatron-Bridge and "trainer.strategy.tensor_model_parallel_size=2" of NeMo 2. Both are Megatron-Core's own fields,
// so that each is said here as the argument of Megatron-LM that it is. What a command leaves to its recipe is not in
// the file.
#include "launch/nemo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "launch/megatron.h"
#include "launch/nemo_recipes.h"
#include "sim/base/text_check.h"

namespace rehearse::launch {
namespace {

using formats::ShellCommand;
using formats::ShellScript;
using formats::ShellWord;
using NemoWords = std::map<std::string_view, std::string_view>;

// Short options of either argument_parser.py that say something of the plan.
const NemoWords& short_options() {
  static const NemoWords all = {
      {"-m", "model_family_name"},
      {"-mr", "model_recipe_name"},
      {"-ng", "num_gpus"},
      {"-gb", "global_batch_size"},
      {"-mb", "micro_batch_size"},
      {"-sl", "seq_length"},
      {"-tp", "tensor_model_parallel_size"},
      {"-pp", "pipeline_model_parallel_size"},
      {"-cp", "context_parallel_size"},
      {"-vp", "virtual_pipeline_model_parallel_size"},
      {"-vb", "enable_vboost"},
      {"-lgc", "lock_gpu_freq"},
      {"-ol", "activation_offload_layers"},
      {"-ep", "expert_model_parallel_size"},
      {"-et", "expert_tensor_parallel_size"},
      {"-gn", "gpus_per_node"},
      {"-g", "gpu"},
      {"-c", "compute_dtype"},
      {"-rl", "recompute_num_layers"},
      {"-rm", "recompute_modules"},
      {"-fr", "fp8_recipe"},
      {"-fsdp", "use_megatron_fsdp"},
      {"-cg", "cuda_graphs"},
      {"-nlay", "num_layers"},
      {"-hs", "hidden_size"},
  };
  return all;
}

// Fields whose argument of Megatron-LM has another name than theirs with '-' for '_'.
const NemoWords& renamed_fields() {
  static const NemoWords all = {
      {"virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
      {"tensor_parallel_size", "tensor-model-parallel-size"},  // of NeMo 2's scripts/performance/argument_parser.py
      {"pipeline_parallel_size", "pipeline-model-parallel-size"},
      {"virtual_pipeline_parallel_size", "num-virtual-stages-per-pipeline-rank"},
      {"expert_parallel_size", "expert-model-parallel-size"},
      {"fp8", "fp8-format"},
      {"fp4", "fp4-format"},
      {"deterministic", "deterministic-mode"},
      {"num_moe_experts", "num-experts"},
      {"sequence_length", "seq-length"},
      {"encoder_seq_length", "seq-length"},
      {"bucket_size", "ddp-bucket-size"},
      {"warmup_iters", "lr-warmup-iters"},
      {"warmup_steps", "lr-warmup-iters"},
      {"gradient_clip_val", "clip-grad"},
      {"max_lr", "lr"},
      {"num_nodes", "nnodes"},
      {"devices", "nproc-per-node"},
      {"moe_a2a_overlap", "overlap-moe-expert-parallel-comm"},
  };
  return all;
}

// Sections of a configuration whose fields are Megatron-Core's.
bool known_section(std::string_view section) {
  constexpr std::string_view kSections[] = {"model",          "model.config",     "train",
                                            "data",           "dataset",          "ddp",
                                            "comm_overlap",   "optimizer",        "optim",
                                            "optim.config",   "scheduler",        "optim.lr_scheduler",
                                            "trainer",        "trainer.strategy", "trainer.strategy.ddp",
                                            "trainer.plugins"};
  return std::find(std::begin(kSections), std::end(kSections), section) != std::end(kSections);
}

// --gpu as a topology.
const NemoWords& gpu_topologies() {
  static const NemoWords all = {{"h100", "dgx-h100"}, {"h200", "hgx-h200"},     {"b200", "hgx-b200"},
                                {"b300", "hgx-b300"}, {"gb200", "gb200-nvl72"}, {"gb300", "gb300-nvl72"},
                                {"a100", "dgx-a100"}};
  return all;
}

std::string_view looked_up(const NemoWords& words, std::string_view key) {
  const auto found = words.find(key);
  return found == words.end() ? std::string_view() : found->second;
}

std::string flag_of(std::string_view field) {
  if (const std::string_view other = looked_up(renamed_fields(), field); !other.empty()) return std::string(other);
  std::string flag(field);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  return std::string(text);
}

struct NemoCommand {
  std::vector<CommandOption> options;
  bool performance = false;  // scripts/performance
  bool bridge = false;       // that of Megatron-Bridge
  bool two = false;          // NeMo 2, by its command or its sections
  std::string recipe;        // "llama3_8b"
  ShellWord from = {};       // where the recipe is named; its text alone
};

std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1));
}

// "llama3_8b" of "pretrain_llama3_8b.py", "llama3_8b_pretrain_config" and "llama3_8b(num_nodes=2)".
std::string recipe_of(std::string name) {
  name = name.substr(0, name.find_first_of("(. "));
  for (const std::string_view head : {"pretrain_", "finetune_"})
    if (name.starts_with(head)) name.erase(0, head.size());
  for (const std::string_view tail : {"_config", "_pretrain", "_sft", "_finetune", "_peft", "_lora"})
    if (name.ends_with(tail)) name.erase(name.size() - tail.size());
  return name;
}

// "pretrain_llama3_8b" of "scripts/performance/llm/pretrain_llama3_8b.py", and of the module
// "scripts.performance.llm.pretrain_llama3_8b"; "": neither.
std::string program_of(const std::string& text) {
  if (text.starts_with("scripts.performance.")) return text.substr(text.rfind('.') + 1);
  const std::string file = base_name(text);
  return file.ends_with(".py") ? file.substr(0, file.size() - 3) : "";
}

// "model.num_layers" of "+model.num_layers".
std::string_view assigned(const CommandOption& one) {
  return std::string_view(one.name).substr(one.name.find_first_not_of('+'));
}

// Whether fields of Megatron-Core are assigned to.
void read_assignment(std::string_view name, NemoCommand& one, bool& assigns) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !known_section(name.substr(0, dot))) return;
  if (name.starts_with("trainer.strategy.")) one.two = true;
  for (const std::string_view tail : {"_parallel_size", "global_batch_size", "micro_batch_size"})
    if (name.ends_with(tail)) assigns = true;
}

NemoCommand nemo_command(const ShellCommand& command) {
  NemoCommand one;
  one.options = options_of(command, PlainNames::yes);
  bool assigns = false, all_gpus = false;
  std::string size;  // of --model_name llama3 --model_size 8b, as Megatron-Bridge had it in 2025
  const CommandOption* name = nullptr;
  const auto named = [&](const CommandOption& option, std::string recipe) {
    one.recipe = recipe_of(std::move(recipe));
    one.from = option.at;
    one.from.text = unquoted(option.values.front());
  };
  for (const CommandOption& option : one.options) {
    if (!option.name.starts_with('-')) {
      read_assignment(assigned(option), one, assigns);
      continue;
    }
    if (option.values.empty()) continue;
    const auto is = [&](std::string_view key, std::string_view short_key = "-") {
      return option.name == key || option.name == short_key;
    };
    if (is("--model_recipe_name", "-mr")) one.performance = one.bridge = true;
    if (is("--model_recipe_name", "-mr") || is("--recipe") || is("--factory"))
      named(option, unquoted(option.values.front()));
    if (is("--num_gpus", "-ng")) all_gpus = true;
    if (is("--model_name", "-m")) name = &option;
    if (is("--model_size", "-s")) size = option.values.front();
  }
  for (std::size_t i = 0; i < command.words.size(); ++i) {
    const std::string& text = command.words[i].text;
    if (i + 1 < command.words.size() && text == "nemo" && command.words[i + 1].text == "llm") one.two = true;
    const std::string recipe = recipe_of(program_of(text));
    if (!one.recipe.empty() || !nemo_recipes().contains(recipe)) continue;
    one.recipe = recipe, one.from = command.words[i];
    if (all_gpus) one.performance = true;
  }
  const bool starts_bridge = std::any_of(command.words.begin(), command.words.end(), [](const ShellWord& word) {
    const std::string program = program_of(word.text);
    return program == "run_script" || program == "setup_experiment";
  });
  if (one.recipe.empty() && all_gpus && name != nullptr && !size.empty())
    if (const std::string joined = name->values.front() + "_" + size;
        starts_bridge || nemo_recipes().contains(recipe_of(joined)))
      named(*name, joined), one.performance = one.bridge = true;
  if (!one.performance && !one.two && !assigns) one.options.clear();
  return one;
}

// The command of a script with most options.
NemoCommand nemo_command(const ShellScript& script) {
  NemoCommand best;
  for (const ShellCommand& each : script.commands)
    if (NemoCommand one = nemo_command(parted_command(each)); one.options.size() > best.options.size())
      best = std::move(one);
  return best;
}

// Settings of one word's kind; `text` is what stands in the file.
Setting said(std::string key, std::vector<std::string> values, const ShellWord& at, std::string text) {
  Setting setting{std::move(key), std::move(values), at.line, at.column, at.unset};
  setting.as = std::move(text);
  return setting;
}

class Translation {
 public:
  explicit Translation(const NemoCommand& nemo) : nemo_(nemo) {
    factory();
    assignments();
    options();  // behind assignments: the program applies them later (scripts/performance/run_script.py)
  }
  std::vector<Setting> take() { return std::move(all_); }

 private:
  void add(std::string_view field, std::string value, const ShellWord& at, const std::string& text) {
    if (value == "null" || value == "None") return all_.push_back(said("", {}, at, text));  // as without it
    if (field == "expert_tensor_parallel_size" && value == "True") return all_.push_back(said("", {}, at, text));
    if (field == "use_mcore_fsdp") field = "use_megatron_fsdp";
    if (field == "recompute_layers") field = "recompute_num_layers";
    if (field == "compute_dtype" || field == "precision" || field == "mixed_precision")
      return precision(value, at, text);
    const bool yes = value == "True" || value == "true" || value == "1" || value == "yes";
    if (field == "cuda_graphs")  // of NeMo 2: a graph a layer (model.config.enable_cuda_graph)
      return all_.push_back(said("cuda-graph-impl", {yes ? "local" : "none"}, at, text));
    if (field == "grad_reduce_in_fp32") {
      return all_.push_back(said(yes ? "accumulate-allreduce-grads-in-fp32" : "grad-reduce-in-bf16", {}, at, text));
    }
    if (field == "gated_linear_unit") return all_.push_back(said(yes ? "swiglu" : "", {}, at, text));
    if (field == "add_bias_linear") return all_.push_back(said(yes ? "" : "disable-bias-linear", {}, at, text));
    if (field == "share_embeddings_and_output_weights")
      return all_.push_back(said(yes ? "" : "untie-embeddings-and-output-weights", {}, at, text));
    if (field == "num_query_groups") all_.push_back(said("group-query-attention", {}, at, text));
    if (field == "recompute_modules") std::replace(value.begin(), value.end(), ',', ' ');
    if (field == "recompute_num_layers" && text.starts_with("-")) {  // utils/overrides.py, _set_recompute_overrides
      all_.push_back(said("recompute-granularity", {"full"}, at, text));
      all_.push_back(said("recompute-method", {"block"}, at, text));
    }
    if (field == "recompute_modules" && text.starts_with("-"))
      all_.push_back(said("recompute-granularity", {"selective"}, at, text));
    if (field == "use_megatron_fsdp" && text.starts_with("-") && yes)  // _set_megatron_fsdp_overrides
      all_.push_back(said("data-parallel-sharding-strategy", {"optim_grads_params"}, at, text));
    if (field == "moe_flex_dispatcher_backend" && text.starts_with("-"))
      all_.push_back(said("moe-token-dispatcher-type", {"flex"}, at, text));
    std::vector<std::string> values;
    if (field == "recompute_modules") {
      for (std::size_t from = value.find_first_not_of("[] \"'"); from != std::string::npos;
           from = value.find_first_not_of("[] \"'", from)) {
        const std::size_t end = std::min(value.find_first_of("[] \"'", from), value.size());
        values.push_back(value.substr(from, end - from));
        from = end;
      }
    } else {
      values.push_back(std::move(value));
    }
    all_.push_back(said(flag_of(field), std::move(values), at, text));
  }

  // scripts/performance/utils/precision.py and megatron/bridge/training/mixed_precision.py, by either name.
  void precision(const std::string& value, const ShellWord& at, const std::string& text) {
    struct Kind {
      std::string_view short_name, part;
      const char *format, *recipe;
      bool params;
    };
    constexpr Kind kKinds[] = {{"fp8_cs", "current_scaling", "hybrid", "tensorwise", true},
                               {"fp8_mx", "mxfp8", "e4m3", "mxfp8", true},
                               {"fp8_sc", "subchannel_scaling", "hybrid", "blockwise", false},
                               {"fp8_ds", "delayed_scaling", "hybrid", "delayed", true},
                               {"fp8", "fp8_mixed", "hybrid", "delayed", true}};
    const bool half = value.starts_with("fp16") || value == "16-mixed" || value == "16";
    if (value != "32" && value != "fp32") all_.push_back(said(half ? "fp16" : "bf16", {}, at, text));
    if (value.find("nvfp4") != std::string::npos) return all_.push_back(said("fp4-format", {"e2m1"}, at, text));
    for (const Kind& kind : kKinds) {
      if (value != kind.short_name && value.find(kind.part) == std::string::npos) continue;
      all_.push_back(said("fp8-format", {kind.format}, at, text));
      all_.push_back(said("fp8-recipe", {kind.recipe}, at, text));
      if (kind.params) all_.push_back(said("fp8-param-gather", {}, at, text));
      return;
    }
  }

  // "llama3_8b(num_nodes=2, num_gpus_per_node=8)", as NeMo 2 takes a recipe with its arguments.
  void factory() {
    const std::string& text = nemo_.from.text;
    for (const auto& [argument, flag] : {std::pair{"num_nodes", "nnodes"}, {"num_gpus_per_node", "nproc-per-node"}}) {
      const std::size_t at = text.find(std::string(argument) + "=");
      if (text.find('(') == std::string::npos || at == std::string::npos) continue;
      const std::size_t from = at + std::string_view(argument).size() + 1;
      const std::size_t end = std::min(text.find_first_not_of("0123456789", from), text.size());
      all_.push_back(said(flag, {text.substr(from, end - from)}, nemo_.from, text.substr(at, end - at)));
    }
  }

  void assignments() {
    for (const CommandOption& one : nemo_.options) {
      if (one.name.starts_with('-')) continue;
      const std::string name(assigned(one)), value = unquoted(one.values.front());
      const std::size_t dot = name.rfind('.');
      const bool known = dot != std::string::npos && known_section(std::string_view(name).substr(0, dot));
      if (known)
        add(std::string_view(name).substr(dot + 1), value, one.at, one.at.text);
      else if (name == "mixed_precision")
        precision(value, one.at, one.at.text);
      else
        all_.push_back(said(name, {value}, one.at, one.at.text));
    }
  }

  // "--name value", "-tp 2"; what stands before the program is its launcher's, but is listed too.
  void options() {
    for (const CommandOption& one : nemo_.options) {
      if (!one.name.starts_with('-')) continue;
      const std::string shown = one.values.empty() ? one.name : one.name + " " + one.values.front();
      std::string name = one.name.starts_with("--") ? one.name.substr(2) : one.name;
      if (const std::string_view long_name = looked_up(short_options(), name); !long_name.empty()) name = long_name;
      if (name.starts_with('-')) {
        all_.push_back(said(name, one.values, one.at, shown));
        continue;
      }
      std::replace(name.begin(), name.end(), '-', '_');
      std::string value = one.values.empty() ? "True" : one.values.front();
      if (name == "fp8_recipe") {  // of 25.07 and 25.09: "--compute_dtype fp8 --fp8_recipe cs" is fp8_cs
        all_.push_back(said("", {}, one.at, shown));
        continue;
      }
      if (name == "compute_dtype" && value == "fp8")
        if (const std::string_view recipe = eight_bit_recipe(); !recipe.empty()) value = recipe;
      add(name, std::move(value), one.at, shown);
    }
  }

  // Of --fp8_recipe, by the name that says both; "": there is none.
  std::string_view eight_bit_recipe() const {
    static const NemoWords recipes = {{"ds", "fp8_ds"}, {"cs", "fp8_cs"}, {"mx", "fp8_mx"}, {"ss", "fp8_sc"}};
    std::string_view last;
    for (const CommandOption& one : nemo_.options)
      if ((one.name == "--fp8_recipe" || looked_up(short_options(), one.name) == "fp8_recipe") && !one.values.empty())
        last = looked_up(recipes, one.values.front());
    return last;
  }

  const NemoCommand& nemo_;
  std::vector<Setting> all_;
};

// What a later setting of the same name says otherwise, of names that mean something here: others are listed without
// their values.
void note_overridden(const std::vector<Setting>& settings, Taken& taken) {
  std::map<std::string, const Setting*> last;
  for (const Setting& one : settings) {
    const Setting*& before = last[one.key];
    if (before != nullptr && taken.knows(one.key) && before->values != one.values)
      taken.assume(one_line(fmt::format("{}, which the program applies after {}", one.as, before->as)));
    before = &one;
  }
}

// cluster.gpus: all of them by --num_gpus, or nodes x devices.
void take_nemo_ranks(Taken& taken, const NemoCommand& nemo, const ImportHints& hints) {
  if (taken.has("num-gpus")) {
    taken.row({"cluster.gpus", "num-gpus"});
    for (const char* key : {"nproc-per-node", "nnodes", "gpus-per-node", "sbatch-nodes", "sbatch-gpus-per-node",
                            "sbatch-ntasks-per-node"})
      taken.find(key);
    return;
  }
  // One task a node starts the others.
  const Setting* const tasks = taken.peek("sbatch-ntasks-per-node");
  const bool slurm =
      taken.has("sbatch-gpus-per-node") || (tasks != nullptr && tasks->values != std::vector<std::string>{"1"});
  if (nemo.two && !slurm && !taken.has("nproc-per-node") && taken.has("nnodes")) {
    constexpr std::int64_t kDevices = 8;  // num_gpus_per_node of nemo/collections/llm/recipes
    if (const auto nodes = taken.integer("nnodes"); nodes && *nodes >= 1 && *nodes <= 100'000)
      taken.put("cluster.gpus", fmt::format("{}", *nodes * kDevices), taken.find("nnodes"));
    return taken.assume("8 GPUs a node, as NeMo's recipes have them (trainer.devices)");
  }
  take_ranks(taken, hints, false);
}

// The model and the topology, where no hint says them.
ImportHints take_nemo_names(Taken& taken, const NemoCommand& nemo, ImportHints hints) {
  for (const char* key : {"model-family-name", "model-recipe-name", "recipe", "factory"}) taken.find(key);
  if (!nemo.recipe.empty() && hints.model.empty()) {
    const Setting at{"recipe", {}, nemo.from.line, nemo.from.column, "", nemo.from.text};
    const auto found = nemo_recipes().find(nemo.recipe);
    const std::string preset(found == nemo_recipes().end() ? "" : found->second.preset);
    if (preset.empty()) {
      std::vector<std::string> known;
      for (const auto& one : nemo_recipes()) known.emplace_back(one.first);
      const std::string near = nearest(nemo.recipe, known);
      taken.error(at, fmt::format("there is no preset of the recipe {}", detail::shown(nemo.recipe)),
                  near.empty() ? "name the model with --model" : fmt::format("did you mean '{}'? Or --model", near));
    } else {
      taken.used(at, "model " + preset);
    }
    hints.model = preset;
  }
  const auto gpu = taken.text("gpu");
  if (!gpu || !hints.cluster.empty()) return hints;
  hints.cluster = looked_up(gpu_topologies(), *gpu);
  if (hints.cluster.empty())
    taken.assume(fmt::format("another GPU than --gpu {}, of which there is no topology", one_line(*gpu)));
  else
    taken.used(*taken.find("gpu"), "cluster.topology " + hints.cluster);
  return hints;
}

// What of the model a command changes, beside the recipe's.
void take_model_changes(Taken& taken) {
  std::vector<FieldRow> rows = megatron_model_rows();
  rows.insert(rows.end(), {{"model.kv_heads", "num-query-groups"},
                           {"model.head_dim", "kv-channels"},
                           {"model.dropout", "hidden-dropout", Mapped::number},
                           {"model.experts", "num-experts"},
                           {"model.experts_per_token", "moe-router-topk"},
                           {"model.expert_ffn_hidden", "moe-ffn-hidden-size"},
                           {"model.dense_layers", "first-k-dense-replace"},
                           {"model.mtp_depth", "mtp-num-layers"}});
  for (const FieldRow& row : rows) {
    if (!taken.has(row.theirs)) continue;
    taken.row(row);
    if (taken.given(row.ours)) taken.put_over(row.ours, taken.value_of(row.ours), nullptr);
  }
  // megatron/bridge/training/utils/moe_token_drop.py: a capacity of 1, padded; false: none, as presets have it.
  if (taken.flag("use-tokendrop")) taken.put_over("model.capacity_factor", "1", taken.find("use-tokendrop"));
}

}  // namespace

bool is_nemo(const ShellScript& script) {
  return !nemo_command(script).options.empty();
}

Imported import_nemo(const std::string& file, const ShellScript& script, const ImportHints& hints) {
  const NemoCommand nemo = nemo_command(script);
  std::vector<Setting> settings = Translation(nemo).take(), beside = environment_of(script);
  std::vector<std::string> assumed;
  const std::vector<Setting> own = settings;
  add_recipe_defaults(nemo.performance, settings, assumed);
  std::move(beside.begin(), beside.end(), std::back_inserter(settings));
  Taken taken(file, std::move(settings), "--");
  const ImportHints names = take_nemo_names(taken, nemo, hints);
  taken.know_preset(names);
  take_nemo_ranks(taken, nemo, hints);
  if (names.model.empty())
    take_megatron_model(taken);
  else
    take_model_changes(taken);
  take_megatron_plan(taken);
  if (nemo.bridge)
    take_recipe_dispatch(taken);
  else if (names.model.empty())
    take_default_dispatch(taken);
  take_megatron_training(taken);
  if (!names.model.empty()) take_recipe_sequences(taken, nemo.recipe);
  take_recipe_adapters(taken);
  std::vector<std::string> left;
  for (const auto& [flag, field] : {std::pair{"tensor-model-parallel-size", "tensor_model_parallel_size"},
                                    {"pipeline-model-parallel-size", "pipeline_model_parallel_size"},
                                    {"context-parallel-size", "context_parallel_size"},
                                    {"expert-model-parallel-size", "expert_model_parallel_size"},
                                    {"micro-batch-size", "micro_batch_size"},
                                    {"global-batch-size", "global_batch_size"}})
    if (!taken.has(flag)) left.emplace_back(field);
  note_overridden(own, taken);
  for (std::string& line : assumed) taken.assume(std::move(line));
  taken.assume(fmt::format(
      "what the command leaves to its recipe{} is not in the file, and is this program's default here{}{}",
      nemo.recipe.empty() ? "" : " " + one_line(nemo.recipe), left.empty() ? "" : ": ", fmt::join(left, ", ")));
  pinned_collectives(taken);
  for (const std::string& line : script.passed_over) taken.ignore(one_line(line));
  return taken.finish("nemo", names, "nemo");
}

}  // namespace rehearse::launch
