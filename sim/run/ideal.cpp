// See ideal.h.
#include "sim/run/ideal.h"

namespace rehearse::run {
namespace {

constexpr std::int64_t kMostOps = 20'000'000;

}  // namespace

Time ideal_step(const plan::Scenario& scenario, const std::vector<std::string>& assignments, const Options& options,
                std::int64_t ops) {
  const bool chosen = !scenario.framework_why.empty() && scenario.framework.name != "rehearse";
  const bool one = options.samples == 0 && scenario.jobs.empty() && options.fidelity != Fidelity::step;
  if (!chosen || !one || ops > kMostOps) return {};
  std::vector<std::string> with = assignments;
  with.emplace_back("framework=rehearse");
  Options alone = options;
  alone.record = alone.what_if = false;
  alone.progress = nullptr;
  alone.phase = nullptr;
  alone.processes = nullptr;  // the others do not ask for it
  const plan::Scenario ideal = plan::read_scenario(scenario.file, with, options.data_root);
  return Time::from_ps(simulate_scenario(ideal, alone).step_time_ps);
}

}  // namespace rehearse::run
