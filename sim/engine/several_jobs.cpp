// Jobs of a simulation: their lanes, their starts, and where there are several, how long they go on. See simulator.h.
#include <fmt/format.h>

#include <algorithm>

#include "sim/account/grid_view.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/engine/simulator.h"

namespace rehearse::engine {

namespace {

// A job that goes on does so many steps at most: what waits for a job that is stuck, or a million times longer, ends.
constexpr std::int32_t kMostSteps = 100'000;

[[noreturn]] void refuse_many_steps(const std::string& name) {
  const std::string who = name.empty() ? "this scenario's own job" : "job '" + name + "'";
  throw InputError(Diagnostic{"", 0, 0, "cluster.jobs",
                              fmt::format("{} has done {} steps and another job not yet its own: jobs so different are "
                                          "not simulated together",
                                          who, kMostSteps),
                              "fewer --steps, or an earlier start"});
}

}  // namespace

void Simulator::make_jobs(const std::vector<Job>& jobs) {
  REHEARSE_CHECK(!goes_on_ || (sharing_.cores == 0 && steps_ != 1 && steps_ < kMostSteps),
                 "several jobs: {} cores shared, {} steps", sharing_.cores, steps_);
  jobs_.resize(jobs.size());
  std::size_t roles = 0;
  for (const JobCode& code : codes_) roles += code.code.roles.size();
  times_.reserve(roles);
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Job& job = jobs[j];
    JobState& state = jobs_[j];
    const bool reported = j == 0 && steps_ > 0;
    REHEARSE_CHECK(job.launch_cost >= Time() && job.start >= Time(), "launch cost {} ps, start {} ps",
                   job.launch_cost.ps(), job.start.ps());
    state.stop = reported ? steps_ : kMostSteps;
    state.repeats = goes_on_ ? std::max(2, job.repeats) : steps_;
    state.start = job.start.ps();
    last_start_ = std::max(last_start_, state.start);
    state.noise = Noise(job.noise, options_.sample, reported ? options_.spared : std::vector<int>(), job.grid.ranks());
    noisy_kernels_ = noisy_kernels_ || state.noise.kernels();
    noisy_transfers_ = noisy_transfers_ || state.noise.transfers();
    const std::size_t first_times = times_.size();
    for (const RoleCode& role : codes_[j].code.roles) times_.emplace_back(role, job.costs);
    const program::GridView grid = account::grid_view(job.program, job.grid);
    state.first_rank = static_cast<std::int32_t>(ranks_.size());
    state.last_rank = state.first_rank + job.grid.ranks();
    state.first_lane = static_cast<LaneId>(lanes_.size());
    ranks_.resize(static_cast<std::size_t>(state.last_rank));
    hosts_.resize(ranks_.size());
    for (std::int32_t rank = 0; rank < grid.ranks; ++rank) {
      check_interrupt();
      const auto role = static_cast<std::size_t>(grid.role(rank));
      make_lanes(state.first_rank + rank, codes_[j].code.roles[role], times_[first_times + role]);
    }
    state.last_lane = static_cast<LaneId>(lanes_.size());
  }
}

// Its lanes begin: at the first step, or after those they have stopped at.
void Simulator::start_job(std::int32_t index) {
  JobState& job = jobs_[static_cast<std::size_t>(index)];
  for (std::int32_t rank = job.first_rank; rank < job.last_rank; ++rank)
    if (!ranks_[static_cast<std::size_t>(rank)].code->syncs.empty()) {
      set_limit(rank);
      advance_host(rank);
    }
  for (LaneId id = job.first_lane; id < job.last_lane; ++id) {
    Lane& lane = lanes_[static_cast<std::size_t>(id)];
    if (lane.code->stream_slots[static_cast<std::size_t>(lane.stream)].empty()) continue;
    lane.status = Status::advancing;
    lane.idle_since = now_;
    histories_.begin(id, now_);
    go_to_slot(lane);
    work_.push_back(id);
  }
}

// A job that goes on has ended a step. Its last one must have begun with all jobs there, and not from a standstill.
void Simulator::end_repeat(std::int32_t index) {
  JobState& job = jobs_[static_cast<std::size_t>(index)];
  const std::size_t done = job.step_ends.size();
  if (done == static_cast<std::size_t>(kMostSteps))
    refuse_many_steps(codes_[static_cast<std::size_t>(index)].job->name);
  if (job.met || done < static_cast<std::size_t>(job.repeats)) return;
  const bool from_standstill = index == 0 && steps_ > 0 && done == static_cast<std::size_t>(steps_) + 1;
  job.met = job.step_ends[done - 2].ps() >= last_start_ && !from_standstill;
}

// The end of an instant: takes what the first job reports once all its lanes have stopped, and lets it go on. True if
// the simulation is over.
bool Simulator::settle_jobs() {
  JobState& first = jobs_[0];
  const bool stopped = steps_ > 0 && !taken_ && first.lanes_running == 0 && hosts_done(first);
  if (stopped) {
    outcome_ = outcome();
    network_.close_log();
    taken_ = true;
  }
  const bool all = std::all_of(jobs_.begin(), jobs_.end(), [](const JobState& job) { return job.met; });
  if (all && (taken_ || steps_ == 0)) return true;
  if (!stopped) return false;
  first.stop = kMostSteps;
  for (LaneId id = first.first_lane; id < first.last_lane; ++id)
    first.lanes_running += lanes_[static_cast<std::size_t>(id)].step == steps_ ? 1 : 0;
  start_job(0);
  return false;
}

// Of the job that is furthest from its repeats. While a job has not started it is the clock that says how far, and all
// that comes after is guessed to take as long as the first job's first step, as often as it repeats.
double Simulator::repeats_done() const {
  double least = 1;
  for (const JobState& job : jobs_)
    if (!job.met) least = std::min(least, static_cast<double>(job.step_ends.size()) / job.repeats);
  if (last_start_ == 0) return least;
  const JobState& first = jobs_[0];
  const double after = first.step_ends.empty() ? 0 : static_cast<double>(first.step_ends[0].ps()) * first.repeats;
  const double start = static_cast<double>(last_start_), waiting = start / (start + after);
  if (now_ < last_start_) return static_cast<double>(now_) / start * waiting;
  return waiting + (1 - waiting) * std::clamp(least, 0.0, 1.0);
}

void Simulator::describe_jobs(Outcome& result) const {
  result.events = events_;
  result.ops = goes_on_ ? ops_done_ : jobs_[0].ops_per_step * steps_;
  for (const JobState& job : jobs_) result.job_step_ends.push_back(job.step_ends);
}

}  // namespace rehearse::engine
