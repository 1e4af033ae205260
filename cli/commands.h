// The commands, one file each. add_X() describes a command to the parser; when the user chose it, parsing sets
// `action`, which does the work and returns the exit code. Bad input throws InputError.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/result/result.h"
#include "sim/run/run.h"

namespace rehearse::cli {

using Action = std::function<int()>;

void add_simulate(CLI::App& app, Action& action);
void add_execute(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_estimate(CLI::App& app, Action& action);
void add_goodput(CLI::App& app, Action& action);
void add_queue(CLI::App& app, Action& action);
void add_list(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_discover(CLI::App& app, Action& action);
void add_init(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_schema(CLI::App& app, Action& action);
// Needs the commands added before it: they are what it completes.
void add_completion(CLI::App& app, Action& action);

// Checks of option values whose help shows the option's own type name alone.
CLI::Validator one_of(std::vector<std::string> values);
CLI::Validator between(int low, int high);
// A finite decimal number, nothing else beside it: the parser's own ranges let "nan" through.
CLI::Validator number_between(double low, double high);
CLI::Validator not_empty();

// What the commands that simulate have in common.
struct SimulationRequest {
  std::string file;  // the scenario's
  std::vector<std::string> assignments, calibrations;
  int steps = 2;
  bool fold = true, record = false;  // as run::Options
  std::string fidelity = "flow";     // analytic, flow or step
  int samples = 0;
  bool what_if = false;
  std::string left_out;                                        // as run::Options
  int threads = 1;                                             // simulations at once
  std::function<void(double done)> progress = {};              // instead of a progress line
  const run::Processes* processes = nullptr;                   // as run::Options
  std::vector<account::ServerEvent>* server_events = nullptr;  // as run::Options
  plan::Purpose purpose = plan::Purpose::simulate;
  bool ideal = false;  // where the framework was chosen automatically, also the step of the ideal one (run/ideal.h)
};
// With costs of a CPU: for what is performed there.
plan::Scenario scenario_of(const SimulationRequest& request, const std::string& root);
run::Options options_of(const SimulationRequest& request, const std::string& root);
// Reads and simulates one scenario with a progress line; several threads may at once with a `progress` of their own.
// Fills limited_by and shows the file as the user knows it.
result::Result simulate_file(const SimulationRequest& request, const std::string& root);
// The result's notes, on standard error.
// The scenario with its layers, where plan.layers_per_stage: by_time leaves them to the costs of its cluster's devices;
// then `said` says which. Throws InputError, located.
plan::Scenario with_chosen_layers(plan::Scenario scenario, const std::string& root, std::string* said);
void tell_notes(const result::Result& r);
// Gives a measured result the names and keys that a simulation of the scenario on this machine has.
void describe_measured(const plan::Scenario& scenario, const std::string& file, const std::string& root,
                       result::Result& r);

}  // namespace rehearse::cli
