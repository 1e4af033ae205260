#include "calibrate/gpu/walk.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <thread>

#include "calibrate/kernel_times.h"
#include "calibrate/walk_world.h"
#include "execute/rank/gpu/gpu_rank.h"
#include "sim/base/host.h"

namespace rehearse::calibrate::gpu {
namespace {

constexpr std::chrono::milliseconds kWalkLook{5};

// Stops the rank and waits for its thread, whatever way a walk ends.
class Walking {
 public:
  Walking(execute::GpuRank& rank, execute::Stop& stop) : rank_(rank), stop_(stop) { rank_.start(); }
  ~Walking() {
    if (!rank_.ended()) stop_.request();
    rank_.join();
  }
  Walking(const Walking&) = delete;
  Walking& operator=(const Walking&) = delete;

 private:
  execute::GpuRank& rank_;
  execute::Stop& stop_;
};

bool timed(const program::Op& op) {
  return is_kernel(op) && !std::holds_alternative<program::Input>(op.shape);
}

Walk spans_of(const execute::GpuRank& rank, int steps) {
  const program::Role& role = *rank.timeline().role;
  std::map<std::pair<int, int>, std::vector<double>> seconds;
  for (const result::OpRecord& r : rank.records())
    if (r.step >= kStepsBeforeWalk + steps / 2)
      seconds[{r.body, r.op}].push_back(static_cast<double>(r.duration_ps) * 1e-12);
  Walk walk;
  for (auto& [place, list] : seconds) {
    const auto& op = role.bodies[static_cast<std::size_t>(place.first)].ops[static_cast<std::size_t>(place.second)];
    if (timed(op)) walk.ops.push_back({&role, &op, std::move(list)});
  }
  walk.products = rank.products();
  walk.conditions = rank.device_use().conditions;
  return walk;
}

}  // namespace

Walk walk(const WalkRequest& request, std::unique_ptr<execute::Gpu> gpu) {
  const plan::RankGrid grid = request.scenario.grid();
  const auto timelines = execute::make_timelines(request.program, grid);
  int rank = 0;
  while (grid.coordinate(rank, Axis::pipeline) != request.stage) ++rank;
  const auto data = walk_data(request.scenario);
  WalkWorld world({rank}, static_cast<std::size_t>(grid.ranks()));
  execute::Options options;
  options.steps = kStepsBeforeWalk + request.steps;
  options.record = options.record_every_step = options.clear_arena = true;
  execute::Run run{request.scenario, request.program, grid, options, *data, world, timelines, usable_cores(), true, {}};
  execute::GpuOptions gpu_options;
  gpu_options.graphs = execute::Graphs::off;
  gpu_options.measure_products = request.measure_products;
  execute::GpuRank performer(
      run, rank, false, std::move(gpu), [] { return std::make_unique<NoQueuedTransfers>(); }, gpu_options);
  performer.initialise();
  run.began = execute::Clock::now();
  const auto until = run.began + std::chrono::duration<double>(request.limit_s);
  {
    const Walking walking(performer, world.stop());
    while (!performer.ended()) {
      if (execute::Clock::now() > until)
        throw std::runtime_error(fmt::format("{} steps took longer than {:.0f} s", options.steps, request.limit_s));
      if (request.poll) request.poll();
      std::this_thread::sleep_for(kWalkLook);
    }
  }
  if (const std::string cause = world.failures().report(execute::had_not_begun); !cause.empty())
    throw std::runtime_error(cause);
  return spans_of(performer, request.steps);
}

}  // namespace rehearse::calibrate::gpu
