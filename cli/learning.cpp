// See learning.h.
#include "cli/learning.h"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/measured_text.h"
#include "cli/metrics_file.h"
#include "execute/reinforcement/learn.h"
#include "execute/step_table.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/result/output_file.h"
#include "sim/result/result.h"
#include "sim/run/reinforcement/phases.h"

namespace rehearse::cli {
namespace {

execute::LearningOutcome perform(const LearningRequest& request, const plan::Scenario& scenario) {
  Progress progress("performing " + scenario.name);
  progress.begin();
  try {
    execute::check_learnable(scenario, request.steps);
    run::Options phases_of;
    phases_of.data_root = request.root;
    const run::PerformedPhases phases = run::performed_phases(scenario, request.assignments, phases_of);
    // Prompts and responses, by all ranks there are.
    const plan::Reinforcement& r = scenario.reinforcement;
    const std::int64_t tokens = std::accumulate(phases.response_lengths.begin(), phases.response_lengths.end(),
                                                r.prompt_tokens * r.sequences());
    MetricsFile metrics(request.metrics, scenario.name, request.steps, scenario.cluster.gpus + r.generation.gpus,
                        static_cast<double>(r.sequences()), static_cast<double>(tokens));
    execute::LearningOptions options;
    options.steps = request.steps;
    options.timeout = request.timeout;
    options.checkpoint = request.checkpoint;
    options.poll = [] { check_interrupt(); };
    options.on_step = [&](int step, const execute::LearningStep& done) {
      if (request.log_every > 0 && (step + 1) % request.log_every == 0)
        note(fmt::format("step {}  reward {:.4f}  loss {}{}  distance {:.3g}  {}, generation {}", step + 1, done.reward,
                         reports::loss_text(done.loss),
                         r.has_critic() ? fmt::format(", critic {}", reports::loss_text(done.value_loss)) : "",
                         done.distance, format_time(Time::from_seconds(done.seconds())),
                         format_time(Time::from_seconds(done.generation_s))));
      if (request.log_every == 0) progress(static_cast<double>(step + 1) / request.steps);
      metrics.step(step, {done.loss, {}});
    };
    const auto of = [](const run::PerformedPhase& phase) {
      return execute::PhasePlan{&phase.scenario, &phase.program};
    };
    return execute::learn({&scenario, of(phases.prefill), of(phases.decode), of(phases.scoring), of(phases.update),
                           phases.response_lengths},
                          options);
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
}

}  // namespace

int execute_learning(const LearningRequest& request, const plan::Scenario& scenario) {
  if (scenario.noise.any()) note("rehearse: note: noise is only simulated; nothing of it is performed");
  execute::LearningOutcome outcome = perform(request, scenario);
  describe_measured(scenario, request.file, request.root, outcome.result);
  outcome.result.scenario["reinforcement.algorithm"] = outcome.result.reinforcement.algorithm;
  if (!request.output.empty()) {
    const Busy line("writing " + request.output);
    result::write_directory(
        outcome.result, request.output,
        {result::directory_file("learning.csv", execute::learning_table(outcome.steps, outcome.first_step)),
         result::directory_file("steps.csv",
                                execute::step_table(outcome.shares, outcome.first_step, outcome.result.loss))});
  }
  print(request.json ? result::to_json(outcome.result) : learning_text(outcome));
  return kDone;
}

}  // namespace rehearse::cli
