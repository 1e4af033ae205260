// What a search asks of its scenario whatever the plan, and what an objective is; see search.h.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/search.h"

namespace rehearse::search {

// With its own plan if that can be, else the first of some usual splits that can.
plan::Scenario any_scenario(const Request& request) {
  const auto read = [&](const std::vector<std::string>& assignments) {
    return plan::read_scenario(request.file, assignments, request.run.data_root);
  };
  try {
    return read(request.assignments);
  } catch (const InputError& error) {
    InputError fewest = error;  // problems
    // Whatever is free is set, lest it be of the scenario's own plan: chunks of stages that are no more, and the like.
    const std::vector<std::string> usual = {"plan.micro_batch=1", "plan.context=1", "plan.expert=1",
                                            "plan.sequence_parallel=false", "plan.layers_per_stage=auto"};
    for (const auto& [schedule, chunks] : {std::pair{"1f1b", 1}, {"interleaved", 2}})
      for (const int zero : {0, 1})
        for (const int tensor : {1, 2, 4, 8, 16})
          for (const int pipeline : {1, 2, 4, 8, 16, 32, 64}) {
            std::vector<std::string> all = usual;
            all.push_back(fmt::format("plan.schedule={}", schedule));
            all.push_back(fmt::format("plan.chunks={}", chunks));
            all.push_back(fmt::format("plan.tensor={}", tensor));
            all.push_back(fmt::format("plan.pipeline={}", pipeline));
            all.push_back(fmt::format("plan.zero={}", zero));
            all.insert(all.end(), request.assignments.begin(), request.assignments.end());
            try {
              return read(all);
            } catch (const InputError& other) {
              if (other.diagnostics().size() < fewest.diagnostics().size()) fewest = other;
            }
          }
    throw InputError(fewest);
  }
}

run::Options options_of(const Request& request) {
  run::Options options = request.run;
  options.record = options.what_if = false;
  options.samples = 0;
  options.threads = 1;
  options.progress = nullptr;
  options.phase = nullptr;
  options.check = false;
  return options;
}

void refuse_what_varies(const plan::Scenario& scenario, Objective objective) {
  const auto refuse = [&](const char* path, const char* message, const char* hint) {
    throw plan::located(InputError(Diagnostic{"", 0, 0, path, message, hint}), scenario);
  };
  if (scenario.plan.served() && objective == Objective::energy)
    refuse("plan.servers", "the energy of parameter servers' devices is not counted yet", "another --objective");
  if (scenario.reinforcement.given)
    refuse("reinforcement", "a search is of plans of training alone",
           "--set reinforcement=null, or sweep with `rehearse simulate`");
  if (!scenario.jobs.empty())
    refuse("cluster.jobs", "a search is of one job's plans", "leave the jobs out, or sweep with `rehearse simulate`");
  // Ranks that are slow throughout leave every step alike; none is faster than without.
  plan::Noise others = scenario.noise;
  if (std::all_of(others.slow_ranks.begin(), others.slow_ranks.end(),
                  [](const plan::SlowRanks& slow) { return slow.factor >= 1; }))
    others.slow_ranks.clear();
  if (others.any())
    refuse("noise", "plans are compared without noise, but for slow_ranks with factors of 1 and more",
           "--set noise={}, then `rehearse simulate --samples` of one");
}

std::int64_t batch_of(const Request& request) {
  return any_scenario(request).training.global_batch;
}

double objective_of(Objective objective, Time step, std::int64_t gpus, std::int64_t batch, std::int64_t bytes,
                    double joules) {
  constexpr double kSecondsAnHour = 3600;
  switch (objective) {
    case Objective::step_time:
      return step.seconds();
    case Objective::cost:
      return step.seconds() * static_cast<double>(gpus) / kSecondsAnHour / static_cast<double>(batch);
    case Objective::memory:
      return static_cast<double>(bytes);
    case Objective::energy:
      return joules / static_cast<double>(batch);
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace rehearse::search
