// A run as its ranks in this process see it, and how they report what went wrong.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "execute/processes/whereabouts.h"
#include "execute/processes/world.h"
#include "execute/timeline.h"

namespace rehearse::execute {

class Checkpoints;
class StepLimit;
class ParameterServers;
class PhaseSteps;

// Where a rank is, of workers or, behind them, of parameter servers that are processes.
std::string rank_whereabouts(const plan::Scenario& scenario, const std::vector<Timeline>& timelines,
                             const plan::RankGrid& grid, int rank, const Whereabouts& at);

// What the ranks of a run that are here share. Outlives them.
struct Run {
  const plan::Scenario& scenario;
  const program::Program& program;
  const plan::RankGrid& grid;
  const Options& options;
  Data& data;
  World& world;
  const std::vector<Timeline>& timelines;  // by role
  int threads_per_rank = 1;
  bool late_ranks_known = true;  // result::Result's
  Clock::time_point began;
  int send_slots = 0;                                               // program::Arenas's
  Checkpoints* checkpoints = nullptr;                               // null: none
  ParameterServers* servers = nullptr;                              // null: the plan has none
  std::shared_ptr<const model::RecordedChoices> choices = nullptr;  // that gates are given; null: each its own
  PhaseSteps* phase = nullptr;                                      // null: steps follow one another
  StepLimit* limit = nullptr;                                       // null: all of options.steps are done
  std::int64_t first_step = 0;  // steps were done before, by the run that this one goes on from

  const Timeline& timeline(int rank) const { return timeline_of(timelines, grid, rank); }
  // Of any rank, from any thread.
  std::string whereabouts(int rank) const {
    return rank_whereabouts(scenario, timelines, grid, rank, world.whereabouts(rank));
  }
};

// The rank cannot go on in an op (instance -1: in none), as `what` says, for want of the ranks `missing` if there are
// any. Stops the run.
void report_failure(Run& run, int rank, std::int32_t instance, const std::string& what,
                    const std::vector<int>& missing = {});
// The run was stopped while the rank waited there for `missing`; nothing to report if that is nobody.
void report_wait(Run& run, int rank, std::int32_t instance, const std::vector<int>& missing);

}  // namespace rehearse::execute
