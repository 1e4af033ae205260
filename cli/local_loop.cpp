// See local_loop.h. Plans are performed one after the other with nothing beside them; what the machine does meanwhile
// for others is in the measured times, and the range of the steps tells how much that was.
#include "cli/local_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "calibrate/calibrate.h"
#include "calibrate/calibration_json.h"
#include "calibrate/other_load.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "execute/performer.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/unfinished.h"
#include "sim/cost/calibration_file.h"
#include "sim/lower/lower.h"
#include "sim/plan/scenario.h"
#include "sim/result/output_file.h"
#include "sim/run/describe_scenario.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLocalPlans = "scenarios/local/plans.yaml";
constexpr int kLeastLocalSteps = 6, kMostLocalSteps = 400;

execute::Outcome perform(const reports::LocalPlan& plan, const plan::Scenario& scenario, int steps, bool record) {
  Progress progress("performing " + plan.id);
  execute::Options options;
  options.steps = steps;
  options.record = record;
  options.poll = check_interrupt;
  options.on_step = [&](int step, double) { progress(static_cast<double>(step + 1) / steps); };
  try {
    return execute::perform(scenario, lower::lower(scenario), options);
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
}

void tell_load(const std::string& what, double others) {
  if (others > calibrate::kQuiet)
    note(fmt::format("rehearse: note: {}: other programs used {} of this machine meanwhile", what,
                     reports::percent(others)));
}

bool oversubscribed(const plan::Scenario& scenario) {
  const auto ranks = static_cast<int>(scenario.cluster.gpus);
  return ranks * execute::threads_per_rank(scenario, ranks) > cost::host_fingerprint().cores;
}

std::vector<reports::LocalPlan> selected(const std::string& filter, const std::string& root) {
  std::vector<reports::LocalPlan> plans = local_plans(root);
  std::erase_if(plans, [&](const auto& plan) { return plan.id.find(filter) == std::string::npos; });
  if (plans.empty())
    throw InputError(Diagnostic{kLocalPlans, 0, 0, "", fmt::format("no plan matches --filter {}", filter), ""});
  return plans;
}

}  // namespace

std::vector<reports::LocalPlan> local_plans(const std::string& root) {
  return reports::read_local_plans((fs::path(root) / kLocalPlans).string());
}

void calibrate_for(const std::vector<reports::LocalPlan>& plans, const Calibrating& how, const std::string& root) {
  calibrate::Request request;
  for (const reports::LocalPlan& plan : plans)
    request.scenarios.push_back(plan::read_scenario(plan.scenario, plan.assignments, root, plan::Purpose::perform));
  request.budget_s = how.budget_s;
  request.command = fmt::format("{} --budget {}", how.command, how.budget_s);
  PhasedProgress progress;
  request.progress = [&](const std::string& what, double done) { progress(what, done); };
  const calibrate::Outcome outcome = calibrate::calibrate(request);
  progress.clear();
  if (!outcome.shortfalls.empty())
    note(fmt::format("rehearse: note: {} of what the plans do did not fit into {} s and is interpolated; first: {}",
                     outcome.shortfalls.size(), how.budget_s, outcome.shortfalls.front()));
  tell_load("calibrating", outcome.others);
  result::write_output(how.file, calibrate::to_json(outcome.calibration));
}

LocalRun simulate_and_perform(const reports::LocalPlan& plan, const std::string& calibration, double seconds,
                              bool record, const std::string& root) {
  const plan::Scenario scenario = plan::read_scenario(plan.scenario, plan.assignments, root, plan::Purpose::perform);
  SimulationRequest request;
  request.file = plan.scenario;
  request.assignments = plan.assignments;
  request.calibrations = {calibration};
  request.purpose = plan::Purpose::perform;
  request.record = record;
  LocalRun run;
  run.simulated = simulate_file(request, root);
  run.oversubscribed = oversubscribed(scenario);
  const double step = static_cast<double>(run.simulated.step_time_ps) * 1e-12;
  const int steps = std::clamp(static_cast<int>(std::min(seconds / step, 1e6)), kLeastLocalSteps, kMostLocalSteps);
  const calibrate::OtherLoad load;
  run.measured = perform(plan, scenario, steps, record).result;
  tell_load("performing " + plan.id, load.share());
  describe_measured(scenario, plan.scenario, root, run.measured);
  return run;
}

int validate_local(const LocalValidation& v, const std::string& root) {
  const std::vector<reports::LocalPlan> plans = selected(v.filter, root);
  const TemporaryFolder temporary("calibration");
  const std::string calibration =
      !v.calibration.empty() ? v.calibration
                             : (fs::path(v.output.empty() ? temporary.path() : v.output) / "calibration.json").string();
  if (!v.calibration.empty()) note_input(v.calibration);
  if (!v.output.empty()) {
    check_output_directory(v.output, {"ledger.csv", "ledger.json", "calibration.json"});
    fs::create_directories(v.output);
  }
  if (v.calibration.empty()) calibrate_for(plans, {v.budget_s, "rehearse validate --local", calibration}, root);
  std::vector<reports::LocalRow> rows;
  for (const reports::LocalPlan& plan : plans) {
    try {
      const LocalRun run = simulate_and_perform(plan, calibration, v.seconds, !v.output.empty(), root);
      rows.push_back(reports::local_row(plan.id, run.simulated, run.measured, run.oversubscribed));
      if (v.output.empty()) continue;
      result::write_directory(run.simulated, (fs::path(v.output) / plan.id / "simulated").string());
      result::write_directory(run.measured, (fs::path(v.output) / plan.id / "measured").string());
    } catch (const execute::DoesNotFit& error) {
      rows.push_back({});
      rows.back().id = plan.id;
      rows.back().reason = error.what();
    }
  }
  if (!v.output.empty())
    result::write_files(
        v.output, {{"ledger.csv", reports::local_ledger_csv(rows)}, {"ledger.json", reports::local_ledger_json(rows)}});
  print(reports::local_ledger_table(rows));
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.reason.empty(); });
  return any ? kDone : kFailed;
}

}  // namespace rehearse::cli
