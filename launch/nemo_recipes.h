// What NeMo's and Megatron-Bridge's recipes have where a command says nothing: the files that a command starts are
// theirs, and not at hand, so that all of it is listed as assumed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/fields.h"

namespace rehearse::launch {

// A recipe's model as a preset of scenarios/models ("llama31_405b" is llama3.1-405b), and the tokens of its sequences:
// those of the runs that NVIDIA publishes by these recipes (scenarios/published/throughput.csv, megatron-bridge, dgxc
// and nemo), of recipes that name them the name's; 0: not known.
struct NemoRecipe {
  std::string_view preset;
  std::int64_t seq_len = 0;
};
const std::map<std::string_view, NemoRecipe>& nemo_recipes();

// Precision, optimizer, overlap, sequence parallelism, and of scripts/performance (`performance`) gradients.
void add_recipe_defaults(bool performance, std::vector<Setting>& settings, std::vector<std::string>& assumed);
void take_recipe_sequences(Taken& taken, const std::string& recipe);
void take_recipe_dispatch(Taken& taken);
void take_recipe_adapters(Taken& taken);

}  // namespace rehearse::launch
