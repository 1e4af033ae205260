// See run.h.
#include "execute/rank/run.h"

#include <fmt/format.h>

#include "sim/program/describe.h"

namespace rehearse::execute {
namespace {

// "rank 1 (stage0) in 'layer1.forward' (slot 2: forward micro-batch 1) waited for ranks 2, 3", and a line for each of
// these: where they are now, not where they get to until they notice. One that waits for nobody is perhaps to blame.
std::string report_text(const Run& run, int rank, std::int32_t instance, const std::string& what,
                        const std::vector<int>& missing) {
  const Timeline& timeline = run.timeline(rank);
  std::string text = program::rank_text(*timeline.role, rank);
  if (instance >= 0) {
    const Instance& i = timeline.instances[static_cast<std::size_t>(instance)];
    text += " in " + program::place_text(*timeline.role, i.slot, i.op);
  }
  text += " " + what;
  if (!missing.empty()) text += " for " + ranks_text(missing);
  for (const int other : missing) text += "\n  " + run.whereabouts(other);
  return text;
}

}  // namespace

std::string rank_whereabouts(const plan::Scenario& scenario, const std::vector<Timeline>& timelines,
                             const plan::RankGrid& grid, int rank, const Whereabouts& at) {
  if (rank < grid.ranks()) return whereabouts_text(timeline_of(timelines, grid, rank), rank, at);
  const bool steps = scenario.plan.consistency == plan::Consistency::synchronous;
  const std::int64_t updates = at.step.load(std::memory_order_relaxed);
  return fmt::format("rank {} (parameter server {}) had applied {} {}{}", rank, rank - grid.ranks(), updates,
                     steps ? "step" : "gradient", updates == 1 ? "" : "s");
}

void report_failure(Run& run, int rank, std::int32_t instance, const std::string& what,
                    const std::vector<int>& missing) {
  run.world.failures().fail(rank, report_text(run, rank, instance, what, missing));
}

void report_wait(Run& run, int rank, std::int32_t instance, const std::vector<int>& missing) {
  if (!missing.empty()) run.world.failures().waited(rank, report_text(run, rank, instance, "waited", missing));
}

}  // namespace rehearse::execute
