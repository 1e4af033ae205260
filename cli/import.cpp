// rehearse import: a scenario from the file that another program is started with (launch/launch.h). What is written is
// read as any scenario is, before it is at its place: nothing is written that simulate refuses.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/model_option.h"
#include "cli/paths.h"
#include "cli/shell_word.h"
#include "launch/launch.h"
#include "reports/batch.h"
#include "sim/base/document.h"
#include "sim/base/unfinished.h"
#include "sim/cluster/topology.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

constexpr int kMostImportGpus = 1'000'000;

struct ImportArguments {
  std::string file, out, model, cluster;
  int gpus = 0;
};

// Problems of the scenario that name a key stand where the launch file says it.
InputError placed_in(const InputError& error, const launch::Imported& imported, const std::string& file) {
  std::vector<Diagnostic> problems;
  for (const Diagnostic& d : error.diagnostics()) {
    const auto found = imported.places.find(d.path);
    Diagnostic here{file, 0, 0, "", d.message, d.hint};
    if (found != imported.places.end()) {
      here.line = found->second.line;
      here.column = found->second.column;
      here.message = fmt::format("{} ({}): {}", found->second.message, d.path, d.message);
    } else if (!d.path.empty()) {
      here.message = fmt::format("{}: {}", d.path, d.message);
    }
    problems.push_back(std::move(here));
  }
  return InputError(std::move(problems));
}

plan::Scenario read_as_scenario(const launch::Imported& imported, const std::string& file, const std::string& root) {
  const TemporaryFolder folder("import");
  const std::string path = folder.path() + "/scenario.yaml";
  result::write_output(path, imported.scenario, result::Over::its_own_input);
  try {
    plan::Scenario s = plan::read_scenario(path, {}, root);
    cluster::build_cluster(s.cluster.topology, static_cast<int>(s.cluster.gpus), s.cluster.overrides, 0, root);
    return s;
  } catch (const InputError& error) {
    throw placed_in(error, imported, file);
  }
}

int import_file(const ImportArguments& a) {
  const std::string root = data_root();
  const std::string text = read_text_file(a.file);
  if (!a.out.empty()) check_output_path(a.out);
  if (!a.model.empty() && !is_configuration(a.model)) check_name("--model", "models", a.model, root);
  if (!a.cluster.empty() && a.cluster.find('/') == std::string::npos && !a.cluster.ends_with(".yaml"))
    check_name("--cluster", "topologies", a.cluster, root);
  const launch::Imported imported = launch::import_plan(a.file, text, {a.model, a.cluster, a.gpus, root});
  const plan::Scenario scenario = read_as_scenario(imported, a.file, root);
  for (const std::string& line : imported.report.used) note("rehearse: used " + line);
  for (const std::string& line : imported.report.unmodelled)
    note("rehearse: not modelled, and changes the step: " + line);
  for (const std::string& line : imported.report.ignored) note("rehearse: ignored " + line);
  for (const std::string& line : imported.report.assumed) note("rehearse: assumed " + line);
  if (const std::string batch = reports::batch_text(reports::batch_of(scenario)); !batch.empty())
    note("rehearse: batch: " + batch);
  if (a.out.empty()) {
    print(imported.scenario);
    return kDone;
  }
  result::write_output(a.out, imported.scenario);
  note(fmt::format("rehearse: wrote {}; now rehearse simulate {}", a.out, shell_word(a.out)));
  return kDone;
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  auto a = std::make_shared<ImportArguments>();
  CLI::App* command = app.add_subcommand("import", "A scenario from another program's launch file");
  command->add_option("FILE", a->file, "A launch script, ds_config.json, TOML or YAML")->required()->type_name("");
  command->add_option("-o", a->out, "Where to (default: standard output)")->type_name("FILE");
  command->add_option("--model", a->model, "Of rehearse list models, for what the file says")->type_name("MODEL");
  command->add_option("--cluster", a->cluster, "Of rehearse list topologies (default: dgx-h100)")
      ->type_name("TOPOLOGY");
  command->add_option("--gpus", a->gpus, "Ranks, for what the file says")
      ->check(between(1, kMostImportGpus))
      ->type_name("N");
  command->footer(
      "Read are scripts with Megatron-LM's arguments or commands of NeMo and\n"
      "Megatron-Bridge, DeepSpeed's JSON, torchtitan's TOML and Accelerate's YAML;\n"
      "which is which is seen by looking.\n"
      "What was used, ignored and assumed is listed on standard error.\n"
      "Examples:\n  rehearse import pretrain.sh -o my.yaml\n"
      "  rehearse import pretrain.sh --model llama3-8b --gpus 64");
  command->callback([a, &action] { action = [a] { return import_file(*a); }; });
}

}  // namespace rehearse::cli
