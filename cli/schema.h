// The JSON Schema of scenario files, made from the table of keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rehearse::cli {

// Draft 07, which editors know best. Names of models, frameworks and the like are those of `root`.
nlohmann::ordered_json scenario_schema(const std::string& root);

}  // namespace rehearse::cli
