// JSON, YAML and TOML as settings with dotted keys, "zero_optimization.stage", each where its value stands; lists have
// their scalars as values. What is null, or "auto" for another program to fill in, is no setting.
#pragma once

#include <string>
#include <vector>

#include "launch/fields.h"
#include "sim/base/document.h"

namespace rehearse::launch {

// Text with comments (//, /* */ and #) in the place of blanks; texts in quotes stay. DeepSpeed reads its files with
// HJSON, which has these.
std::string without_json_comments(const std::string& text);

// Each throws InputError with line and column. `autos`: keys whose value is "auto".
std::vector<Setting> json_settings(const std::string& file, const std::string& text, std::vector<std::string>& autos);
std::vector<Setting> yaml_settings(const std::string& file, const std::string& text);
std::vector<Setting> toml_settings(const std::string& file, const std::string& text);

}  // namespace rehearse::launch
