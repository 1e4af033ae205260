// See jobs.h.
#include "sim/engine/simulator/jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

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

Jobs::Jobs(const IdVector<JobId, JobCode>& codes, const Folding& folding, const Options& options, bool go_on,
           const Clock& clock, Accounts& accounts, Network& network)
    : steps_(options.steps), go_on_(go_on), clock_(clock), accounts_(accounts), network_(network) {
  REHEARSE_CHECK(!go_on || (steps_ != 1 && steps_ < kMostSteps), "several jobs: {} steps", steps_);
  if (steps_ > 0) {
    round_ = static_cast<std::int32_t>(program::steps_per_round(codes[kReported].job->program));
    REHEARSE_CHECK(round_ == 1 || (!go_on && steps_ > round_ && (steps_ - 1) % round_ == 0), "{} steps in rounds of {}",
                   steps_, round_);
  }
  for (const JobId id : codes.ids()) {
    const Job& job = *codes[id].job;
    const bool reported = id == kReported && steps_ > 0;
    REHEARSE_CHECK(job.launch_cost >= Time() && job.start >= Time(), "launch cost {} ps, start {} ps",
                   job.launch_cost.ps(), job.start.ps());
    JobState state;
    state.job = &job;
    state.ranks = folding.ranks(id);
    state.stop = reported ? steps_ : kMostSteps;
    state.repeats = go_on ? std::max(2, job.repeats) : steps_;
    state.start = job.start;
    last_start_ = std::max(last_start_, state.start);
    state.noise = Noise(job.noise, options.sample, reported ? options.spared : std::vector<int>(), job.grid.ranks());
    if (job.noise.machine) state.jitter = MachineJitter(job.costs.device().jitter, job.noise.seed, options.sample);
    noisy_kernels_ = noisy_kernels_ || state.noise.kernels() || state.jitter.any() || job.attention_loads != nullptr;
    noisy_transfers_ = noisy_transfers_ || state.noise.transfers() || state.jitter.any();
    jobs_.push_back(std::move(state));
  }
  if (options.rank_steps && steps_ > 0)
    rank_step_ends_.resize(static_cast<std::size_t>(jobs_[kReported].ranks.last - jobs_[kReported].ranks.first));
}

// The last of its streams says when: time does not run backwards.
void Jobs::end_of_rank_step(RankId rank, std::int32_t step) {
  if (rank.index() >= rank_step_ends_.size()) return;  // of another job
  std::vector<Time>& ends = rank_step_ends_[rank.index()];
  if (static_cast<std::size_t>(step) >= ends.size()) ends.resize(static_cast<std::size_t>(step) + 1);
  ends[static_cast<std::size_t>(step)] = clock_.now();
}

void Jobs::let_reported_go_on(std::int64_t streams) {
  jobs_[kReported].stop = kMostSteps;
  jobs_[kReported].streams_running += streams;
}

void Jobs::open_single_step() {
  if (steps_ == 1) open_report();
}

void Jobs::open_report() {
  accounts_.open(clock_.now());
  network_.open_log();
  reporting_ = true;
  reported_from_ = clock_.now();
}

void Jobs::end_of_step(JobId id, std::int32_t step) {
  JobState& job = jobs_[id];
  while (static_cast<std::size_t>(step) >= job.enders_left.size()) job.enders_left.push_back(job.enders);
  if (--job.enders_left[static_cast<std::size_t>(step)] > 0) return;
  job.step_ends.push_back(clock_.now());
  if (go_on_) end_repeat(id);
  if (id == kReported && step == steps_ - 1 - round_) open_report();
}

// A job that goes on has ended a step. Its last one must have begun with all jobs there, and not from a standstill.
void Jobs::end_repeat(JobId id) {
  JobState& job = jobs_[id];
  const std::size_t done = job.step_ends.size();
  if (done == static_cast<std::size_t>(kMostSteps)) refuse_many_steps(job.job->name);
  if (job.met || done < static_cast<std::size_t>(job.repeats)) return;
  const bool from_standstill = id == kReported && steps_ > 0 && done == static_cast<std::size_t>(steps_) + 1;
  job.met = job.step_ends[done - 2] >= last_start_ && !from_standstill;
}

bool Jobs::all_met() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const JobState& job) { return job.met; });
}

// While a job has not started it is the clock that says how far, and all that comes after is guessed to take as long as
// the first job's first step, as often as it repeats.
double Jobs::repeats_done() const {
  double least = 1;
  for (const JobState& job : jobs_)
    if (!job.met) least = std::min(least, static_cast<double>(job.step_ends.size()) / job.repeats);
  if (last_start_ == Time()) return least;
  const JobState& first = jobs_[kReported];
  const double after = first.step_ends.empty() ? 0 : static_cast<double>(first.step_ends[0].ps()) * first.repeats;
  const double start = static_cast<double>(last_start_.ps()), waiting = start / (start + after);
  if (clock_.now() < last_start_) return static_cast<double>(clock_.now().ps()) / start * waiting;
  return waiting + (1 - waiting) * std::clamp(least, 0.0, 1.0);
}

}  // namespace rehearse::engine
