// What a search asks of its scenario whatever the plan, and what an objective is; see search.h.
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "sim/search/search.h"

namespace rehearse::search {

// Its own if that can be, else the first of some
// usual splits that can.
plan::Scenario any_scenario(const Request& request) {
  const auto read = [&](const std::vector<std::string>& assignments) {
    return plan::read_scenario(request.file, assignments, request.run.data_root);
  };
  try {
    return read(request.assignments);
  } catch (const InputError& error) {
    for (const int zero : {0, 1})
      for (const int tensor : {1, 2, 4, 8, 16})
        for (const int pipeline : {1, 2, 4, 8, 16, 32, 64}) {
          std::vector<std::string> all{fmt::format("plan.tensor={}", tensor), fmt::format("plan.pipeline={}", pipeline),
                                       "plan.micro_batch=1", fmt::format("plan.zero={}", zero)};
          all.insert(all.end(), request.assignments.begin(), request.assignments.end());
          try {
            return read(all);
          } catch (const InputError&) {
            continue;
          }
        }
    throw;
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
