// Hugging Face's config.json, said in the keys of `model:` (docs/scenario.md). Of the kinds of models that transformers
// has, those are translated that the families here express with the same parameters and products; the others are
// refused by name, with what is missing. The names of keys and what holds where one is missing are those of the
// configuration classes of transformers 4.x (src/transformers/models/*/configuration_*.py) and of the files that
// DeepSeek ships beside its models. Leaves out: weights, tokenizers; of files of one model in several parts all but
// the text_config of Llama 4, Gemma 3 and Mistral 3 are refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/document.h"

namespace rehearse::plan::hf {

struct Translated {
  Document model;                  // a mapping of model keys; each value stands where the file has it
  std::string name;                // of the model, as the file or else its kind has it
  std::string kind;                // "llama (LlamaForCausalLM)"
  std::vector<std::string> read;   // "num_hidden_layers 32"
  std::vector<std::string> notes;  // what was assumed, ignored and left out: a sentence or more each
};

// `path`: the file, or the folder that holds a config.json; `own`: the scenario's mapping, whose keys override.
// Problems go to `diagnostics`, with file, line and column; nothing is returned then.
std::optional<Translated> translate(const std::string& path, const Node& own, Diagnostics& diagnostics);

// model_type of what is translated.
std::vector<std::string> kinds();

}  // namespace rehearse::plan::hf
