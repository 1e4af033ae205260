// What commands share: simulating one scenario file, and checks of option values.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/paths.h"
#include "reports/limits.h"
#include "sim/base/interrupt.h"
#include "sim/cluster/topology.h"
#include "sim/cost/calibration_file.h"
#include "sim/cost/cost.h"
#include "sim/plan/scenario.h"
#include "sim/run/describe_scenario.h"
#include "sim/run/ideal.h"
#include "sim/run/layers_by_time.h"
#include "sim/run/prepared.h"
#include "sim/run/reinforcement/reinforcement.h"
#include "sim/run/run.h"

namespace rehearse::cli {

CLI::Validator one_of(std::vector<std::string> values) {
  std::string name;  // command_tree() reads the values from it
  for (const std::string& value : values) name += (name.empty() ? "" : "|") + value;
  return CLI::Validator(CLI::IsMember(std::move(values))).description("").name(name);
}

CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) { return text.empty() ? std::string("its value is empty") : ""; }, "");
}

CLI::Validator between(int low, int high) {
  const auto check = [low, high](std::string& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return std::string();
    return fmt::format("expected an integer from {} to {}, found '{}'", low, high, text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator number_between(double low, double high) {
  const auto check = [low, high](std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
    if (whole && value >= low && value <= high) return std::string();
    return fmt::format("expected a number from {} to {}, found '{}'", low, high, text);
  };
  return CLI::Validator(check, "");
}

namespace {

void check_calibrations(const std::vector<std::string>& names, const std::string& root) {
  for (const std::string& name : names) {
    try {
      cost::find_device_file(name, root);
    } catch (const InputError& error) {
      Diagnostic d = error.diagnostics().front();
      throw InputError(Diagnostic{"--calibration", 0, 0, "", d.message, d.hint});
    }
  }
}

result::Result simulate_located(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                const run::Options& options) {
  try {
    return scenario.reinforcement.given ? run::simulate_reinforcement(scenario, assignments, options)
                                        : run::simulate_scenario(scenario, options);
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
}

}  // namespace

plan::Scenario scenario_of(const SimulationRequest& request, const std::string& root) {
  const bool cpu = std::any_of(request.calibrations.begin(), request.calibrations.end(), &cost::is_calibration_path);
  return plan::read_scenario(request.file, request.assignments, root, cpu ? plan::Purpose::perform : request.purpose);
}

run::Options options_of(const SimulationRequest& request, const std::string& root) {
  run::Options options;
  options.data_root = root;
  options.calibrations = request.calibrations;
  options.steps = request.steps;
  options.fidelity = request.fidelity == "analytic" ? run::Fidelity::analytic
                     : request.fidelity == "step"   ? run::Fidelity::step
                                                    : run::Fidelity::flow;
  options.fold = request.fold;
  options.record = request.record;
  options.samples = request.samples;
  options.what_if = request.what_if;
  options.left_out = request.left_out;
  options.threads = request.threads;
  options.progress = request.progress;
  options.processes = request.processes;
  options.server_events = request.server_events;
  return options;
}

result::Result simulate_file(const SimulationRequest& request, const std::string& root) {
  const plan::Scenario scenario = scenario_of(request, root);
  check_calibrations(request.calibrations, root);
  PhasedProgress line;
  run::Options options = options_of(request, root);
  if (!options.progress) {
    options.progress = [&](double done) { line("simulating " + scenario.name, done); };
    options.phase = [&](std::string_view what) { line.begin(fmt::format("{} {}", what, scenario.name)); };
  }
  result::Result r = simulate_located(scenario, request.assignments, options);
  check_interrupt();
  if (request.ideal && !scenario.reinforcement.given)
    r.ideal_step_ps = run::ideal_step(scenario, request.assignments, options, r.ops).ps();
  r.scenario_file = shown_path(request.file, root);
  r.limited_by = reports::limited_by(r);
  return r;
}

plan::Scenario with_chosen_layers(plan::Scenario scenario, const std::string& root, std::string* said) {
  if (!scenario.plan.layers_by_time) return scenario;
  try {
    run::Options options;
    options.data_root = root;
    std::optional<run::ChosenLayers> chosen = run::choose_layers(scenario, run::Machine(scenario, options));
    if (said != nullptr) *said = chosen->text;
    return std::move(chosen->scenario);
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
}

void tell_notes(const result::Result& r) {
  for (const result::Note& each : r.notes) note("rehearse: note: " + each.text);
}

void describe_measured(const plan::Scenario& scenario, const std::string& file, const std::string& root,
                       result::Result& r) {
  const auto cluster = cluster::build_cluster("local", static_cast<int>(r.ranks), {}, 0, root);
  cost::Device device;
  device.name = "this host";
  run::describe_scenario(scenario, *cluster, device, r);
  r.scenario_file = shown_path(file, root);
}

}  // namespace rehearse::cli
