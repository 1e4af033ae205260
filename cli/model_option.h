// A model that a command line names: a preset, or a Hugging Face configuration.
#pragma once

#include <string>

#include "sim/model/model.h"

namespace rehearse::cli {

// A Hugging Face configuration, and not the name of a preset.
bool is_configuration(const std::string& model);
// What a scenario says of it: the preset's name, or {hf: 'PATH'}.
std::string model_value(const std::string& model);
// Throws InputError if `name` is none of what rehearse list KIND names, with the nearest; `option` is the place.
void check_name(const std::string& option, std::string_view kind, const std::string& name, const std::string& root);
// Throws InputError about `option`, or with places in the configuration.
model::Model model_option(const std::string& option, const std::string& name, const std::string& root);

}  // namespace rehearse::cli
