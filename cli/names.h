// The names of what a scenario may refer to, by kind: "models", "topologies", "devices", "frameworks", "scenarios".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/keys.h"

namespace rehearse::cli {

inline constexpr const char* kNameKinds[] = {"models", "topologies", "devices", "frameworks", "scenarios"};

// Sorted. A broken invariant for another kind.
std::vector<std::string> names_of(std::string_view kind, const std::string& root);

// The values of a key of the scenario file as far as they can be listed: names, choices, a few numbers.
std::vector<std::string> listed_values(const plan::Key& key, const std::string& root);

}  // namespace rehearse::cli
