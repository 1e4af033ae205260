// The flow of a simulation: the program is laid out as flat tables (code.h), ranks that are alike become one
// (folding.h), ranks are connected to their groups and
// peers (matching.h), and the clock runs (simulator/simulator.h) with kernels timed by kernel_times.h under
// interference.h, bytes moved by network.h with shares from max_min.h, and the last step's time explained by
// breakdown.h. Several jobs have ranks one after the other; network and clock are one.
#include "sim/engine/engine.h"

#include <algorithm>
#include <utility>

#include "sim/base/check.h"
#include "sim/engine/simulator/simulator.h"

namespace rehearse::engine {

namespace {

Job reported(const program::Program& program, const plan::RankGrid& grid,
             const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options) {
  return {.program = program,
          .grid = grid,
          .collectives = collectives,
          .costs = costs,
          .launch_cost = options.launch_cost,
          .arena = options.arena,
          .noise = options.noise,
          .repeats = std::max(options.steps, options.repeats),
          .arenas = options.arenas,
          .loaders = options.loaders,
          .attention_loads = options.attention_loads,
          .kinds = options.kinds,
          .layout = options.layout};
}

Outcome run(const std::vector<Job>& jobs, const cluster::Cluster& cluster, const Options& options) {
  try {
    return Simulator(jobs, cluster, options).run();
  } catch (const FoldedDeadlock&) {
    Options every_rank = options;
    every_rank.fold = false;
    return Simulator(jobs, cluster, every_rank).run();
  } catch (const PartsMeet&) {
    Options together = options;
    together.rounds = Options::Rounds::unlike;
    return run(jobs, cluster, together);
  }
}

}  // namespace

Outcome simulate(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                 const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options) {
  return simulate(program, grid, cluster, collectives, costs, options, {});
}

Outcome simulate(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                 const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options,
                 const std::vector<Job>& beside) {
  REHEARSE_CHECK(options.steps > 0, "{} steps", options.steps);
  std::vector<Job> jobs{reported(program, grid, collectives, costs, options)};
  for (const Job& job : beside) jobs.push_back(job);
  return run(jobs, cluster, options);
}

std::vector<Time> repeat_alone(const Job& job, const cluster::Cluster& cluster, const Options& options) {
  Options unreported;
  unreported.steps = 0;
  unreported.noise.links = options.noise.links;
  unreported.noise.seed = options.noise.seed;
  unreported.sample = options.sample;
  unreported.fold = options.fold;
  unreported.progress = options.progress;
  std::vector<Job> jobs{job};
  std::vector<Time> ends = std::move(run(jobs, cluster, unreported).job_step_ends.front());
  ends.resize(static_cast<std::size_t>(job.repeats));
  return ends;
}

}  // namespace rehearse::engine
