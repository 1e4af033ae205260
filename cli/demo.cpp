// rehearse demo: the whole loop. Five ways to split GPT-3 175B over 1,024 A100, simulated; then this machine is
// calibrated, and a small GPT is simulated and performed on it under four plans, side by side; then the best plan for
// those GPUs is sought, and its miniature performed here, which says something of the large one; last the pages that
// show it. Everything is kept below one directory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/local_loop.h"
#include "cli/paths.h"
#include "cli/plan.h"
#include "cli/shrink.h"
#include "execute/placement/placement.h"
#include "reports/html/html.h"
#include "reports/tables.h"
#include "sim/base/in_parallel.h"
#include "sim/result/output_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 5> kPlans = {"gpt3-175b-1024xa100", "gpt3-175b-zero3-tp2", "gpt3-175b-tp8-pp16",
                                               "gpt3-175b-gpipe", "gpt3-175b-gpipe-recompute"};
// Of these two the page shows the timeline: 1F1B beside GPipe. The others' operations would be tens of megabytes more.
constexpr std::array<const char*, 2> kDrawn = {"gpt3-175b-1024xa100", "gpt3-175b-gpipe-recompute"};
constexpr std::array<const char*, 4> kLocal = {"gpt-ddp2", "gpt-zero3", "gpt-gpipe2", "gpt-2x2x2"};

// Of the search: what the demo's time leaves free (tensor, pipeline, recomputation, sequence parallelism).
constexpr std::array<const char*, 5> kSearchFixed = {"plan.context=1", "plan.schedule=1f1b", "plan.chunks=1",
                                                     "plan.micro_batch=1", "plan.zero=1"};
// Of --budget and --seconds: what the miniature gets once more.
constexpr double kBudgetOfMiniature = 0.15, kSecondsOfMiniature = 0.75;

struct DemoArguments {
  std::string output = "rehearse-demo";
  double budget = 40, seconds = 4;
};

std::string below(const DemoArguments& a, const std::string& name) {
  return (fs::path(a.output) / name).string();
}

void write_page(const std::vector<std::string>& directories, const std::string& path) {
  std::vector<result::StoredResult> runs;
  for (const std::string& directory : directories) runs.push_back(result::read_directory(directory));
  result::write_output(path, reports::html_page(runs, {}));
}

// Five plans on 1,024 GPUs; returns their directories.
std::vector<std::string> simulate_plans(const DemoArguments& a, const std::string& root) {
  std::vector<result::Result> results(kPlans.size());
  std::vector<std::string> directories;
  for (const char* name : kPlans) {
    directories.push_back(below(a, name));
    check_result_directory(directories.back());
  }
  {
    Progress line("simulating five plans");
    std::mutex mutex;
    std::array<double, kPlans.size()> done{};
    in_parallel(hardware_threads(), kPlans.size(), [&](std::size_t i) {
      SimulationRequest request;
      request.file = scenario_file(kPlans[i], root);
      request.record = std::find(kDrawn.begin(), kDrawn.end(), std::string_view(kPlans[i])) != kDrawn.end();
      request.progress = [&, i](double share) {
        const std::scoped_lock lock(mutex);
        done[i] = share;
        line(std::accumulate(done.begin(), done.end(), 0.0) / kPlans.size());
      };
      results[i] = simulate_file(request, root);
      result::write_directory(results[i], directories[i]);
      results[i].records = {};
    });
  }
  print("GPT-3 175B on 1,024 A100 (80 GB), five ways to split it\n\n" + reports::comparison(results) + '\n');
  return directories;
}

// A small GPT under four plans on this machine; returns the directories of what was simulated and measured.
std::vector<std::string> close_the_loop(const DemoArguments& a, const std::string& root) {
  std::vector<reports::LocalPlan> plans = local_plans(root);
  std::erase_if(plans,
                [](const auto& plan) { return std::find(kLocal.begin(), kLocal.end(), plan.id) == kLocal.end(); });
  const std::string calibration = below(a, "calibration.json");
  calibrate_for(plans, {a.budget, "rehearse demo", calibration}, root);
  std::vector<reports::LocalRow> rows;
  std::vector<std::string> directories;
  for (const reports::LocalPlan& plan : plans) {
    const LocalRun run = simulate_and_perform(plan, calibration, a.seconds, true, root);
    rows.push_back(reports::local_row(plan.id, run.simulated, run.measured, run.oversubscribed));
    for (const result::Result* r : {&run.simulated, &run.measured}) {
      directories.push_back(below(a, fmt::format("{}/{}", plan.id, r->source)));
      result::write_directory(*r, directories.back());
    }
  }
  print("A small GPT on this machine: simulated from its calibration, then performed\n\n" +
        reports::local_ledger_table(rows) + '\n');
  return directories;
}

// The best plan of a small space, its miniature performed here; returns the directories of the miniature's two results.
std::vector<std::string> choose_and_perform(const DemoArguments& a, const std::string& root) {
  PlanArguments plan;
  plan.scenario = kPlans[0];
  plan.request.assignments.assign(kSearchFixed.begin(), kSearchFixed.end());
  plan.top = 3;
  plan.output = below(a, "plan");
  plan.output_given = true;
  if (const int code = plan_command(plan); code != kDone)
    throw std::runtime_error(fmt::format("the search of {} ended with {}", kPlans[0], code));
  print("\nThe best of these in miniature, on this machine\n\n");
  ShrinkRequest shrink;
  shrink.file = below(a, "plan/plan-1.yaml");
  shrink.base = below(a, "calibration.json");
  shrink.budget_s = std::max(1.0, a.budget * kBudgetOfMiniature);
  shrink.seconds = a.seconds * kSecondsOfMiniature;
  shrink.step_s = 0.5;
  shrink.output = below(a, "miniature");
  shrink.brief = true;
  execute_shrunk(shrink, root);
  print("\n");
  return {below(a, "miniature/simulated"), below(a, "miniature/measured")};
}

int demo(const DemoArguments& a) {
  execute::refuse_launcher("demo");
  const std::string root = data_root();
  check_output_directory(a.output, {"calibration.json", "gpt3.html", "this-machine.html"});
  check_output_directory(below(a, "plan"), {"plans.json", "plan-1.yaml"});
  check_shrink_output(below(a, "miniature"));
  const std::vector<std::string> plans = simulate_plans(a, root);
  std::vector<std::string> local = close_the_loop(a, root);
  for (std::string& directory : choose_and_perform(a, root)) local.push_back(std::move(directory));
  write_page(plans, below(a, "gpt3.html"));
  write_page(local, below(a, "this-machine.html"));
  print(fmt::format("Open in a browser:\n  {}\n  {}\n", below(a, "gpt3.html"), below(a, "this-machine.html")));
  return kDone;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto a = std::make_shared<DemoArguments>();
  CLI::App* command = app.add_subcommand("demo", "The whole loop, from 1,024 GPUs to this machine");
  command->add_option("--budget", a->budget, "Seconds to calibrate this machine (default 40)")
      ->check(number_between(1, 1e5))
      ->type_name("S");
  command->add_option("--seconds", a->seconds, "Seconds each plan is performed (default 4)")
      ->check(number_between(0.1, 1e5))
      ->type_name("S");
  command->add_option("-o", a->output, "Where results and pages go (default rehearse-demo)")->type_name("DIR");
  command->footer("Examples:\n  rehearse demo\n  rehearse demo --budget 20 -o out");
  command->callback([a, &action] { action = [a] { return demo(*a); }; });
}

}  // namespace rehearse::cli
