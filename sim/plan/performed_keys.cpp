// See performed_keys.h. tests/unit/plan/performed_keys_test.cpp changes every key of the table and looks for it here.
#include "sim/plan/performed_keys.h"

#include "sim/plan/keys.h"

namespace rehearse::plan {

std::vector<std::pair<std::string, std::string>> performed_keys(const Scenario& scenario) {
  std::vector<std::pair<std::string, std::string>> performed;
  const std::string family = value_text(*find_key("model.family"), scenario).value_or("");
  for (const Key& key : keys()) {
    const bool counts = key.section() == "model" || key.section() == "plan" || key.section() == "training" ||
                        key.path == "cluster.gpus" || key.path == "cluster.threads_per_rank";
    if (!counts || !key.of_family(family)) continue;
    if (const auto text = value_text(key, scenario)) performed.emplace_back(key.path, *text);
  }
  performed.emplace_back("framework", scenario.framework.name);
  return performed;
}

}  // namespace rehearse::plan
