// rehearse goodput: what a run of weeks comes to that failures interrupt (sim/run/goodput.h), with the step that the
// scenario's own simulation gives.
#include "reports/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/price_option.h"
#include "cli/refuse.h"
#include "reports/batch.h"
#include "reports/estimate.h"
#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/base/text_check.h"
#include "sim/run/goodput.h"

namespace rehearse::cli {
namespace {

constexpr double kUsualDays = 30;
constexpr int kMostSamples = 1'000'000;

struct GoodputArguments {
  std::string scenario, tokens;
  std::vector<std::string> assignments, calibrations;
  PriceOption price;
  double days = 0;
  int samples = 1000;
  bool json = false;
};

double seconds_of_step(const result::Result& r) {
  return static_cast<double>(r.step_time_ps) * 1e-12;
}

// The step with so many replicas missing, of the first batch that the plan can take.
double step_with_missing(const SimulationRequest& whole, const std::string& root, const plan::Scenario& scenario,
                         std::int64_t missing) {
  const std::vector<std::int64_t> batches = run::batches_with_missing(scenario, missing);
  for (const std::int64_t batch : batches) {
    SimulationRequest request = whole;
    request.assignments.push_back(fmt::format("training.global_batch={}", batch));
    try {
      return seconds_of_step(simulate_file(request, root));
    } catch (const InputError&) {
      if (batch == batches.back()) throw;
    }
  }
  return 0;
}

int goodput(const GoodputArguments& a) {
  const std::string root = data_root();
  run::GoodputOptions options;
  options.days = a.days;
  if (!a.tokens.empty()) {
    const auto units = reports::parse_model_size(a.tokens);
    if (!units)
      refuse("--tokens", fmt::format("expected a number such as 1.4T or 300B, found {}", detail::shown(a.tokens)));
    options.units = *units;
  } else if (a.days == 0) {
    options.days = kUsualDays;
  }
  options.samples = a.samples;
  options.threads = hardware_threads();
  SimulationRequest request;
  request.file = scenario_file(a.scenario, root);
  request.assignments = a.assignments;
  request.calibrations = a.calibrations;
  const plan::Scenario scenario = scenario_of(request, root);
  options.price_per_gpu_hour = a.price.of(scenario.cluster.topology, root).usd;
  const auto weeks = [&](double step_s) {
    try {
      return run::goodput_of(scenario, step_s, run::devices_of_host(scenario, root), options);
    } catch (const InputError& error) {
      throw plan::located(error, scenario);
    }
  };
  // What is wrong with its sections shows before anything is simulated.
  options.samples = 0;
  weeks(1);
  options.samples = a.samples;
  std::map<std::int64_t, double> known;  // by the batch: several numbers missing leave as many that share it evenly
  options.step_s_missing = [&](std::int64_t missing) {
    const std::int64_t batch = run::batches_with_missing(scenario, missing).front();
    const auto found = known.find(batch);
    if (found != known.end()) return found->second;
    return known[batch] = step_with_missing(request, root, scenario, missing);
  };
  const result::Result step = simulate_file(request, root);
  tell_notes(step);
  if (!step.memory_fits) note("rehearse: note: the plan does not fit in memory; its step is as if it did");
  options.first_weights_s = static_cast<double>(step.first_weights.time_ps) * 1e-12;
  result::Goodput g = weeks(seconds_of_step(step));
  g.batch = reports::batch_text(step);
  print(a.json ? reports::goodput_json(g) : reports::goodput_text(g));
  return kDone;
}

}  // namespace

void add_goodput(CLI::App& app, Action& action) {
  auto a = std::make_shared<GoodputArguments>();
  CLI::App* command = app.add_subcommand("goodput", "A run of weeks with failures, checkpoints and restarts");
  command->add_option("SCENARIO", a->scenario, "A file, or a name of rehearse list scenarios")
      ->required()
      ->type_name("");
  command->add_option("--set", a->assignments, "Override a key, as failures.restart=5min; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("--calibration", a->calibrations, "Also these measurements; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE");
  CLI::Option* days = command->add_option("--days", a->days, "How long it runs (default 30)")
                          ->check(number_between(0.01, 1e5))
                          ->type_name("N");
  command->add_option("--tokens", a->tokens, "Instead: until so much is trained on, as 15.6T")
      ->excludes(days)
      ->type_name("N");
  command->add_option("--samples", a->samples, "Runs to draw (default 1000)")
      ->check(between(1, kMostSamples))
      ->type_name("N");
  a->price.add_to(*command);
  command->add_flag("--json", a->json, "The same for programs");
  command->footer(
      "Examples:\n  rehearse goodput llama3-405b-54-days --days 54\n"
      "  rehearse goodput my.yaml --tokens 1T --price 2.5 --set checkpoint.mode=async");
  command->callback([a, &action] { action = [a] { return goodput(*a); }; });
}

}  // namespace rehearse::cli
