// What a search asks of its scenario whatever the plan, and what an objective is; see search.h.
#include <fmt/format.h>

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
