// See local_loop.h. Plans are performed one after the other with nothing beside them; what the machine does meanwhile
// for others is in the measured times. The range of the steps tells how much that was, and the machine's pace
// (sim/base/pace.h) how it differed from that of the calibration.
#include "cli/local_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "calibrate/calibrate.h"
#include "calibrate/calibration_json.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "execute/other_load.h"
#include "execute/pace_watch.h"
#include "execute/performer.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/unfinished.h"
#include "sim/cost/calibration_file.h"
#include "sim/lower/lower.h"
#include "sim/model/model.h"
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
  options.on_step = [&](int step, const execute::StepLoss&) { progress(static_cast<double>(step + 1) / steps); };
  try {
    const program::Program program = lower::lower(scenario);
    const int cores = cost::host_fingerprint().cores, ranks = static_cast<int>(scenario.cluster.gpus);
    execute::PaceWatch pace(cores);
    options.poll = [&pace] {
      check_interrupt();
      pace.look();
    };
    pace.begin_stretch();
    execute::Outcome outcome = execute::perform(scenario, program, options);
    pace.end_stretch();
    pace.probe();
    outcome.result.pace = pace.pace(ranks * execute::threads_per_rank(scenario, ranks));
    return outcome;
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
}

void tell_load(const std::string& what, double others) {
  if (others > execute::kQuiet)
    note(fmt::format("rehearse: note: {}: other programs used {} of this machine meanwhile", what,
                     reports::percent(others)));
}

bool oversubscribed(const plan::Scenario& scenario) {
  const auto ranks = static_cast<int>(scenario.cluster.gpus);
  return ranks * execute::threads_per_rank(scenario, ranks) > cost::host_fingerprint().cores;
}

// A rough time of a step on this machine: only ratios matter.
double rough_step(const plan::Scenario& s) {
  const auto& t = s.training;
  return model::model_flops(s.model, t.global_batch, t.seq_len, t.adapters());
}

// The seconds that each plan's program may take to be measured: half of them alike, half by how long a step takes.
std::vector<double> shares_of(double seconds, const std::vector<double>& steps) {
  const double all = std::accumulate(steps.begin(), steps.end(), 0.0), n = static_cast<double>(steps.size());
  std::vector<double> shares;
  for (const double step : steps) shares.push_back(seconds * (all > 0 ? (1 / n + step / all) / 2 : 1 / n));
  return shares;
}

// Calibrates this machine, and then again for one plan after the other.
class Interleaved {
 public:
  Interleaved(const std::vector<reports::LocalPlan>& plans, double budget_s, const std::string& root) {
    for (const reports::LocalPlan& plan : plans)
      scenarios_.push_back(plan::read_scenario(plan.scenario, plan.assignments, root));
    calibrate::Request machine;
    machine.budget_s = budget_s * kOfMachine;
    calibration_ = measure(machine, "calibrating");
    std::vector<double> steps;
    for (const plan::Scenario& s : scenarios_) steps.push_back(rough_step(s));
    shares_ = shares_of(budget_s * (1 - kOfMachine), steps);
  }
  // Measures the next plan's program and writes what is known then.
  void calibrate_next(const std::string& file) {
    fs::create_directories(fs::path(file).parent_path());
    calibrate::Request request;
    request.scenarios = {scenarios_.at(next_)};
    request.extent = calibrate::Extent::programs;
    request.budget_s = shares_.at(next_++);
    calibration_ = calibrate::refreshed(calibration_, measure(request, "calibrating for " + request.scenarios[0].name));
    write(file);
  }
  // How much the machine changed between a plan's calibration and its performance is what the next one's may.
  void learn_drift(double drift) {
    drifts_.push_back(std::log(drift));
    if (drifts_.size() < kFewestDrifts) return;
    double squares = 0;
    for (const double d : drifts_) squares += d * d;
    calibration_.pace.spread = std::sqrt(squares / static_cast<double>(drifts_.size()));
  }
  void write(const std::string& file) const { result::write_output(file, calibrate::to_json(calibration_)); }

 private:
  static constexpr double kOfMachine = 0.2;
  static constexpr std::size_t kFewestDrifts = 3;

  static cost::Calibration measure(calibrate::Request& request, const std::string& what) {
    request.command = fmt::format("rehearse validate --local --budget {}", request.budget_s);
    PhasedProgress progress;
    request.progress = [&](const std::string& part, double done) { progress(part, done); };
    const calibrate::Outcome outcome = calibrate::calibrate(request);
    progress.clear();
    tell_load(what, outcome.others);
    return outcome.calibration;
  }

  std::vector<plan::Scenario> scenarios_;
  std::vector<double> shares_;
  std::size_t next_ = 0;
  std::vector<double> drifts_;
  cost::Calibration calibration_;
};

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
  if (!how.base.empty()) request.extent = calibrate::Extent::programs;
  PhasedProgress progress;
  request.progress = [&](const std::string& what, double done) { progress(what, done); };
  const calibrate::Outcome outcome = calibrate::calibrate(request);
  progress.clear();
  if (!outcome.shortfalls.empty())
    note(fmt::format("rehearse: note: {} of what the plans do did not fit into {} s and is interpolated; first: {}",
                     outcome.shortfalls.size(), how.budget_s, outcome.shortfalls.front()));
  tell_load("calibrating", outcome.others);
  result::write_output(
      how.file, calibrate::to_json(how.base.empty()
                                       ? outcome.calibration
                                       : calibrate::refreshed(cost::read_calibration(how.base), outcome.calibration)));
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
  run.measured = perform(plan, scenario, steps, record).result;
  tell_load("performing " + plan.id, run.measured.pace.taken);
  describe_measured(scenario, plan.scenario, root, run.measured);
  return run;
}

int validate_local(const LocalValidation& v, const std::string& root) {
  const std::vector<reports::LocalPlan> plans = selected(v.filter, root);
  const TemporaryFolder temporary("calibration");
  const fs::path folder = v.output.empty() ? temporary.path() : v.output;
  if (!v.calibration.empty()) note_input(v.calibration);
  if (!v.output.empty()) {
    check_output_directory(v.output, {"ledger.csv", "ledger.json", "calibration.json"});
    fs::create_directories(v.output);
  }
  std::optional<Interleaved> interleaved;
  if (v.calibration.empty()) interleaved.emplace(plans, v.budget_s, root);
  std::vector<reports::LocalRow> rows;
  for (const reports::LocalPlan& plan : plans) {
    try {
      const std::string own = (folder / plan.id / "calibration.json").string();
      if (interleaved) interleaved->calibrate_next(own);
      const LocalRun run =
          simulate_and_perform(plan, interleaved ? own : v.calibration, v.seconds, !v.output.empty(), root);
      rows.push_back(reports::local_row(plan.id, run.simulated, run.measured, run.oversubscribed));
      if (interleaved) interleaved->learn_drift(rows.back().drift);
      if (v.output.empty()) continue;
      result::write_directory(run.simulated, (folder / plan.id / "simulated").string());
      result::write_directory(run.measured, (folder / plan.id / "measured").string());
    } catch (const execute::DoesNotFit& error) {
      rows.push_back({});
      rows.back().id = plan.id;
      rows.back().reason = error.what();
    }
  }
  if (!v.output.empty()) {
    if (interleaved) interleaved->write((folder / "calibration.json").string());
    result::write_files(
        v.output, {{"ledger.csv", reports::local_ledger_csv(rows)}, {"ledger.json", reports::local_ledger_json(rows)}});
  }
  print(reports::local_ledger_table(rows));
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.reason.empty(); });
  return any ? kDone : kFailed;
}

}  // namespace rehearse::cli
