// The facts by which one chooses among what a scenario may use, as JSON objects; keys carry their units.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace rehearse::cli {

// One object a name of `kind` (names.h), in the order of names_of(). What cannot be read has `name` and `problem`.
nlohmann::ordered_json facts_of(std::string_view kind, const std::string& root);

}  // namespace rehearse::cli
