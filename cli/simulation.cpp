// What commands share: simulating one scenario file, and checks of option values.
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/paths.h"
#include "reports/limits.h"
#include "sim/plan/scenario.h"
#include "sim/run/run.h"

namespace rehearse::cli {

CLI::Validator one_of(std::vector<std::string> values) {
  return CLI::Validator(CLI::IsMember(std::move(values))).description("");
}

CLI::Validator between(int low, int high) {
  return CLI::Validator(CLI::Range(low, high)).description("");
}

result::Result simulate_file(const SimulationRequest& request, const std::string& root) {
  const plan::Scenario scenario = plan::read_scenario(request.file, request.assignments, root);
  Progress progress("simulating " + scenario.name);
  run::Options options;
  options.data_root = root;
  options.calibrations = request.calibrations;
  options.steps = request.steps;
  options.record = request.record;
  options.progress = [&](double done) { progress(done); };
  result::Result r = run::simulate_scenario(scenario, options);
  check_interrupt();
  r.scenario_file = shown_path(request.file, root);
  r.limited_by = reports::limited_by(r);
  return r;
}

}  // namespace rehearse::cli
