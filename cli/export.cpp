// rehearse export: a scenario's plan as the file that another program is started with (launch/launch.h).
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "launch/launch.h"
#include "reports/batch.h"
#include "sim/cluster/topology.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

struct ExportArguments {
  std::string file, format, out;
  std::vector<std::string> assignments;
};

int export_scenario(const ExportArguments& a) {
  const std::string root = data_root();
  const std::string path = scenario_file(a.file, root);
  if (!a.out.empty()) check_output_path(a.out);
  std::string layers;
  const plan::Scenario scenario = with_chosen_layers(plan::read_scenario(path, a.assignments, root), root, &layers);
  if (!layers.empty()) note("rehearse: note: " + layers);
  const auto cluster = cluster::build_cluster(scenario.cluster.topology, static_cast<int>(scenario.cluster.gpus),
                                              scenario.cluster.overrides, 0, root);
  const launch::Exported exported = launch::export_plan(a.format, scenario, cluster->devices_per_node());
  for (const launch::LeftOut& one : exported.left_out)
    note(fmt::format("rehearse: not in the file: {}: {}", one.key, one.why));
  for (const std::string& line : exported.notes) note("rehearse: note: " + line);
  if (const std::string batch = reports::batch_text(reports::batch_of(scenario)); !batch.empty())
    note("rehearse: batch: " + batch);
  for (const std::string& line : exported.run) note("rehearse: start it with: " + line);
  if (a.out.empty())
    print(exported.text);
  else
    result::write_output(a.out, exported.text);
  return kDone;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto a = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "A plan as another program's launch file");
  command->add_option("SCENARIO", a->file, "A file, or of rehearse list scenarios")->required()->type_name("");
  command->add_option("--to", a->format, "The format, one of those below")
      ->required()
      ->type_name("FORMAT")
      ->check(one_of(launch::export_formats()));
  command->add_option("--set", a->assignments, "Override a key, as plan.tensor=4; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("-o", a->out, "Where to (default: standard output)")->type_name("FILE");
  command->footer(
      "Formats: megatron, megatron-bridge, sbatch, pytorchjob, torchrun, deepspeed,\n"
      "accelerate, torchtitan, torchtitan-toml (docs/launch-files.md).\n"
      "What a format has no field for is listed on standard error.\n"
      "Examples:\n  rehearse export gpt3-175b-tp8-pp16 --to megatron -o pretrain.sh");
  command->callback([a, &action] { action = [a] { return export_scenario(*a); }; });
}

}  // namespace rehearse::cli
