// Models that ship: scenarios/models/NAME.yaml under the root of the data.
#pragma once

#include <string>
#include <vector>

#include "sim/base/document.h"

namespace rehearse::plan {

std::vector<std::string> preset_names(const std::string& data_root);  // sorted
// The preset's own tree, or a missing node after the report. `at` is where the scenario names it.
Node open_preset(const Node& at, const std::string& name, const std::string& data_root, Diagnostics& diagnostics,
                 ParsedFiles* files = nullptr);

}  // namespace rehearse::plan
