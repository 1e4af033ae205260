// The jobs of a simulation: their ranks and streams, their steps, and where there are several, how long they go on.
//
// Of several steps a step ends when the last compute stream does: what other streams still do (gathers for the next
// forward) is the next step's. A single step ends with everything. The first job, if any, is reported; its last step
// opens the accounts and the network's log.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/ids.h"
#include "sim/engine/machine_jitter.h"
#include "sim/engine/matching.h"
#include "sim/engine/network.h"
#include "sim/engine/noise.h"
#include "sim/engine/simulator/accounts.h"
#include "sim/engine/simulator/clock.h"

namespace rehearse::engine {

inline constexpr JobId kReported{0};

class Jobs {
 public:
  // Of jobs the first is reported, unless options.steps is 0. `go_on`: they do, until all have done their repeats. All
  // must outlive this.
  Jobs(const IdVector<JobId, JobCode>& codes, const Folding& folding, const Options& options, bool go_on,
       const Clock& clock, Accounts& accounts, Network& network);

  // To begin with: a stream that does anything; a host that can be the last to end a step.
  void add_stream(JobId job, bool ends_steps) {
    ++jobs_[job].streams_running;
    if (ends_steps) ++jobs_[job].enders;
  }
  void add_host(JobId job) { ++jobs_[job].enders; }

  IdRange<JobId> ids() const { return jobs_.ids(); }
  IdRange<RankId> ranks(JobId job) const { return jobs_[job].ranks; }  // that are simulated
  Time start(JobId job) const { return jobs_[job].start; }
  const Noise& noise(JobId job) const { return jobs_[job].noise; }
  const MachineJitter& jitter(JobId job) const { return jobs_[job].jitter; }
  const AttentionLoads* attention_loads(JobId job) const { return jobs_[job].job->attention_loads; }
  // Whether kernels or transfers of any job take other times than they cost.
  bool noisy_kernels() const { return noisy_kernels_; }
  bool noisy_transfers() const { return noisy_transfers_; }

  // After how many steps streams of a job stop.
  std::int32_t stop(JobId job) const { return jobs_[job].stop; }
  void stream_stopped(JobId job) { --jobs_[job].streams_running; }
  bool all_stopped(JobId job) const { return jobs_[job].streams_running == 0; }
  // What is reported has been taken: the first job's streams, so many of which can, do not stop any more.
  void let_reported_go_on(std::int64_t streams);

  // A stream or host that ends steps has finished one.
  void end_of_step(JobId job, std::int32_t step);
  // The same of a rank of the reported job, where each rank's ends are kept.
  void end_of_rank_step(RankId rank, std::int32_t step);
  bool keeps_rank_steps() const { return !rank_step_ends_.empty(); }
  // By rank simulated and step.
  const std::vector<std::vector<Time>>& rank_step_ends() const { return rank_step_ends_; }
  const std::vector<Time>& step_ends(JobId job) const { return jobs_[job].step_ends; }
  // How many of the last steps are reported together.
  std::int32_t reported_steps() const { return round_; }
  // Single steps are reported from the beginning.
  void open_single_step();
  // Whether what ends now ends in the step reported.
  bool in_reported_step() const {
    const std::vector<Time>& ends = jobs_[kReported].step_ends;
    const auto steps = static_cast<std::size_t>(steps_);
    return reporting_ && clock_.now() > reported_from_ && (ends.size() < steps || clock_.now() <= ends[steps - 1]);
  }

  // Whether jobs that go on have all done their repeats.
  bool all_met() const;
  // The share of repeats done, of the job that is furthest from its own.
  double repeats_done() const;

 private:
  struct JobState {
    const Job* job = nullptr;
    IdRange<RankId> ranks;
    std::int32_t stop = 0;
    std::int32_t repeats = 0;  // steps it has to do at least
    bool met = false;          // it has
    Time start;
    Noise noise;
    MachineJitter jitter;
    std::int64_t streams_running = 0;
    std::int64_t enders = 0;                // streams and hosts that must finish a step to end it
    std::vector<std::int64_t> enders_left;  // by step: those that have not
    std::vector<Time> step_ends;
  };

  void end_repeat(JobId job);
  void open_report();

  const std::int32_t steps_;  // of the reported job; 0: none is
  std::int32_t round_ = 1;    // of its last steps so many are reported together
  const bool go_on_;
  const Clock& clock_;
  Accounts& accounts_;
  Network& network_;
  IdVector<JobId, JobState> jobs_;
  std::vector<std::vector<Time>> rank_step_ends_;  // empty: not asked for
  Time last_start_;                                // of all jobs
  bool noisy_kernels_ = false, noisy_transfers_ = false;
  bool reporting_ = false;  // the step reported has begun, at
  Time reported_from_;
};

}  // namespace rehearse::engine
