// rehearse demo: five ways to split GPT-3 175B over 1,024 A100, side by side.
#include <array>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "reports/tables.h"

namespace rehearse::cli {
namespace {

constexpr std::array<const char*, 5> kPlans = {"gpt3-175b-1024xa100", "gpt3-175b-zero3-tp2", "gpt3-175b-tp8-pp16",
                                               "gpt3-175b-gpipe", "gpt3-175b-gpipe-recompute"};

struct Arguments {
  std::string output;
  bool output_given = false;
};

int demo(const Arguments& a) {
  const std::string root = data_root();
  std::vector<result::Result> results;
  for (const char* name : kPlans) {
    SimulationRequest request;
    request.file = scenario_file(name, root);
    request.record = a.output_given;
    const std::string directory = (std::filesystem::path(a.output) / name).string();
    if (a.output_given) check_output(directory, request.file);
    results.push_back(simulate_file(request, root));
    if (a.output_given) result::write_directory(results.back(), directory);
    results.back().records = {};
  }
  print("GPT-3 175B on 1,024 A100 (80 GB), five ways to split it\n\n" + reports::comparison(results));
  return kDone;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("demo", "Compare five plans for GPT-3 175B on 1,024 GPUs");
  CLI::Option* output =
      command->add_option("-o", a->output, "Write each plan's results below this directory")->type_name("DIR");
  command->footer("Examples:\n  rehearse demo\n  rehearse demo -o out    # out/gpt3-175b-1024xa100/result.json, ...");
  command->callback([a, output, &action] {
    a->output_given = output->count() > 0;
    action = [a] { return demo(*a); };
  });
}

}  // namespace rehearse::cli
