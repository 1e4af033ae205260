// See names.h.
#include "cli/names.h"

#include <filesystem>

#include "cli/paths.h"
#include "sim/base/check.h"
#include "sim/cluster/topology.h"
#include "sim/plan/framework.h"
#include "sim/plan/model_presets.h"

namespace rehearse::cli {

std::vector<std::string> names_of(std::string_view kind, const std::string& root) {
  if (kind == "models") return plan::preset_names(root);
  if (kind == "topologies") return cluster::topology_names(root);
  if (kind == "devices") return yaml_names((std::filesystem::path(root) / "calibrate" / "devices").string());
  if (kind == "frameworks") return plan::framework_names();
  REHEARSE_CHECK(kind == "scenarios", "no names of kind {}", kind);
  return scenario_names(root);
}

std::vector<std::string> listed_values(const plan::Key& key, const std::string& root) {
  using plan::KeyType;
  std::vector<std::string> list;
  if (key.or_auto) list.emplace_back("auto");
  if (!key.names_of.empty())
    for (std::string& name : names_of(key.names_of, root)) list.push_back(std::move(name));
  if (key.type == KeyType::boolean) list.insert(list.end(), {"false", "true"});
  if (key.type == KeyType::choice || key.type == KeyType::choice_or_integer || key.type == KeyType::integers)
    list.insert(list.end(), key.values.begin(), key.values.end());
  if (key.type == KeyType::integer && key.max && *key.max - *key.min < 10)
    for (double x = *key.min; x <= *key.max; ++x) list.push_back(std::to_string(static_cast<int>(x)));
  return list;
}

}  // namespace rehearse::cli
