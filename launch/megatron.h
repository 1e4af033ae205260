// Megatron-LM's arguments (pretrain_gpt.py), Megatron-Core 0.15: megatron/training/arguments.py and the dataclasses of
// megatron/core/model_parallel_config.py, transformer/transformer_config.py and
// distributed/distributed_data_parallel_config.py, whose fields later versions turn into the same flags.
#pragma once

#include <string>
#include <vector>

#include "formats/shell_script.h"
#include "launch/fields.h"

namespace rehearse::launch {

inline constexpr const char* kMegatronProfile = "megatron-core";

// "--tensor-model-parallel-size" "8"; the value of a flag is "".
struct Argument {
  std::string flag, value;
};
struct MegatronArguments {
  std::vector<Argument> model, parallel, training;
};

// Rows that are the same both ways.
const std::vector<FieldRow>& megatron_model_rows();
const std::vector<FieldRow>& megatron_plan_rows();
const std::vector<FieldRow>& megatron_training_rows();

MegatronArguments megatron_arguments(Said& said);
// Of a model that Megatron-LM's GPT is.
void megatron_model_arguments(Said& said, std::vector<Argument>& model);
// What trains it: pretrain_gpt.py, or of layers of one branch another, with what it wants first.
std::string megatron_trainer(const model::Model& model);
// Keys of the model that the arguments give.
void take_megatron_model(Taken& taken);
// plan.layers_per_stage as --pipeline-model-parallel-layout has it, "Et*3|t*4|t*3L", and back; nothing if it is none.
std::string pipeline_layout(const std::vector<std::int64_t>& layers, std::int64_t mtp_depth = 0);
struct StageLayout {
  std::vector<std::int64_t> layers;  // of each virtual stage, in the order of layers
  bool modules_apart = false;        // multi-token prediction's are on a stage before the loss's
};
std::optional<StageLayout> layers_of_layout(const std::string& layout);
// Which of so many layers have experts, as --moe-layer-freq has it: "2" every second from the first on, a list of 0 and
// 1 for each as "([0]*3+[1]*58)" or "([0,1]*24)"; nothing if it is neither, or of another number of layers
// (megatron/core/models/gpt/gpt_layer_specs.py, get_gpt_decoder_block_spec).
std::optional<std::vector<bool>> expert_layers(const std::string& frequency, std::int64_t layers);

// "  --flag value" a line, quoted for a shell.
std::string argument_lines(const std::vector<Argument>& list);
// What is left out, and why, as comments.
std::string left_comments(const std::vector<LeftOut>& list);

Exported export_megatron(const plan::Scenario& scenario, std::int64_t gpus_a_node);
// Assignments to a recipe's configuration of Megatron-Bridge 0.2 (docs/megatron-lm-to-megatron-bridge.md there).
Exported export_megatron_bridge(const plan::Scenario& scenario, std::int64_t gpus_a_node);
// The same arguments started by Slurm, and by the training operator of Kubeflow (kubeflow.org/v1 PyTorchJob).
Exported export_sbatch(const plan::Scenario& scenario, std::int64_t gpus_a_node);
Exported export_pytorchjob(const plan::Scenario& scenario, std::int64_t gpus_a_node);
// Whether a script starts Megatron-LM.
bool is_megatron(const formats::ShellScript& script);
Imported import_megatron(const std::string& file, const formats::ShellScript& script, const ImportHints& hints);

// Keys of plan, precision and gradients that Megatron-Core's fields give, by the names of Megatron-LM's arguments.
void take_megatron_plan(Taken& taken);
// How rows go to experts where no argument says it; of Megatron-LM's and Megatron-Core's own default.
void take_default_dispatch(Taken& taken);
// Batch, length and learning rate.
void take_megatron_training(Taken& taken);

// A command with the words of its `eval "a b"` and `bash -c "a b"`.
formats::ShellCommand parted_command(const formats::ShellCommand& command);
// An option of a command as it stands there: "--num_gpus" or "-ng" with its values, "a.b" or "+a.b" of "a.b=1".
struct CommandOption {
  std::string name;
  std::vector<std::string> values;
  formats::ShellWord at;  // its word; `unset`: of its first value
};
enum class PlainNames : bool { no, yes };  // whether "a=1", without a dot, assigns too
std::vector<CommandOption> options_of(const formats::ShellCommand& command, PlainNames plain);
// Variables and directives of Slurm.
std::vector<Setting> environment_of(const formats::ShellScript& script);
// The command of the script with most flags that `known` takes, variables and directives as settings beside it:
// "NCCL_ALGO", "nodes". Words of `bash -c "..."` and eval are parted.
std::vector<Setting> settings_of(const formats::ShellScript& script);
// Whether DeepSpeed's launcher starts the program, whose --num_gpus are those of a node.
bool starts_deepspeed(const formats::ShellScript& script);
// cluster.gpus, by torchrun's, deepspeed's, srun's and sbatch's options.
void take_ranks(Taken& taken, const ImportHints& hints, bool by_deepspeed);

}  // namespace rehearse::launch
