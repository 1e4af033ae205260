// rehearse list: the names a scenario file may use.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "reports/text.h"
#include "sim/base/document.h"
#include "sim/cluster/topology.h"
#include "sim/model/model.h"
#include "sim/plan/framework.h"

namespace rehearse::cli {
namespace {

// A preset with its size: "gpt3-175b  174.6B parameters, 96 layers of 12288".
std::vector<std::string> model_row(const std::string& name, const std::string& root) {
  Diagnostics problems;
  const Document document = Document::from_text(name, fmt::format("model: {}", name), problems);
  const model::Model model = model::read_model(document.root().get("model"), root, problems);
  problems.throw_if_any();
  std::string size = reports::compact(static_cast<double>(model::parameter_count(model)));
  std::replace(size.begin(), size.end(), 'G', 'B');  // the field says billions
  return {name, size, model.is_transformer() ? fmt::format("{} layers of {}", model.layers, model.hidden) : ""};
}

std::string names(const std::vector<std::string>& list) {
  return list.empty() ? "" : fmt::format("{}\n", fmt::join(list, "\n"));
}

std::string models(const std::string& root) {
  std::vector<std::vector<std::string>> rows = {{"model", "parameters", "shape"}};
  for (const std::string& name : model::preset_names(root)) rows.push_back(model_row(name, root));
  return reports::align(rows);
}

int list(const std::string& what) {
  const std::string root = data_root();
  if (what == "models") print(models(root));
  if (what == "topologies") print(names(cluster::topology_names(root)));
  if (what == "devices") print(names(yaml_names((std::filesystem::path(root) / "calibrate" / "devices").string())));
  if (what == "frameworks") print(names(plan::framework_names()));
  if (what == "scenarios") print(names(scenario_names(root)));
  return kDone;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  auto what = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("list", "Names that a scenario may use");
  command->add_option("WHAT", *what, "models, topologies, devices, frameworks, scenarios")
      ->required()
      ->type_name("")
      ->check(one_of({"models", "topologies", "devices", "frameworks", "scenarios"}));
  command->footer("Example:\n  rehearse list models");
  command->callback([what, &action] { action = [what] { return list(*what); }; });
}

}  // namespace rehearse::cli
