// The main flow of a simulation: takes events in order and hands each to the part that it is about, and brings every
// instant to rest. The rules of an instant are in simulator.h.
#include "sim/engine/simulator/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/engine/longest_run.h"
#include "sim/engine/simulator/deadlock.h"

namespace rehearse::engine {

namespace {

constexpr std::int64_t kFirstReport = 1 << 16, kEventsPerReport = 1 << 17;
std::size_t count_streams(const Ranks& ranks) {
  return ranks.empty() ? 0 : ranks.back().streams().last.index();
}

}  // namespace

// Parts that refer to one another are only called once all are there.
Simulator::Simulator(const std::vector<Job>& jobs, const cluster::Cluster& cluster, const Options& options)
    : cluster_(cluster),
      options_(options),
      steps_(options.steps),
      goes_on_(jobs.size() > 1 || jobs[0].repeats != options.steps),
      faults_(options.noise, options.sample, cluster.resources()),
      codes_(lay_out(jobs)),
      folding_(codes_, cluster, options, faults_),
      ranks_(lay_out_ranks(codes_, folding_, options.recorded_ranks)),
      devices_(ranks_.size()),
      network_(cluster, clock_.queue(), Clock::target(EventKind::activity), folding_.resources()),
      step_runs_(network_, clock_.queue(), Clock::target(EventKind::message)),
      matching_(codes_, folding_, cluster, devices_.states(), network_, step_runs_),
      accounts_(count_streams(ranks_), ranks_.size()),
      records_(ranks_, count_streams(ranks_), steps_, accounts_),
      jobs_(codes_, folding_, options, goes_on_, clock_, accounts_, network_),
      streams_(clock_, ranks_, steps_, jobs_, accounts_, hosts_, records_),
      hosts_(clock_, ranks_, steps_, streams_, jobs_, accounts_, records_),
      cores_(clock_, cluster, jobs[0].costs.device(), ranks_, jobs_, streams_, devices_, kernels_),
      kernels_(clock_, codes_, ranks_, jobs_, streams_, hosts_, devices_, cores_, records_),
      loaders_(codes_, ranks_, clock_, streams_, kernels_, records_),
      transfers_(clock_, jobs_, streams_, devices_, matching_, network_, step_runs_, cores_, mailboxes_, staged_sends_,
                 records_, jobs[0].collectives.buffered_messages()),
      mailboxes_(clock_, streams_, matching_, transfers_, cores_),
      staged_sends_(clock_, streams_, devices_, matching_, transfers_),
      rounds_(
          !options.fold || goes_on_ || cores_.shared() || faults_.come_and_go() ? Options::Rounds::all : options.rounds,
          clock_, codes_, ranks_, jobs_, accounts_, records_, streams_, hosts_, kernels_, devices_, transfers_,
          staged_sends_, matching_, network_),
      next_report_(kFirstReport) {
  REHEARSE_CHECK(jobs[0].grid.ranks() <= cluster.devices(), "{} ranks on {} devices", jobs[0].grid.ranks(),
                 cluster.devices());
  REHEARSE_CHECK(!goes_on_ || !cores_.shared(), "several jobs on shared cores");
}

Outcome Simulator::run() {
  begin();
  for (;;) {
    check_interrupt();
    settle_instant();
    if (clock_.next() > clock_.now()) {
      network_.settle(clock_.now());
      if (goes_on_ && clock_.next() > clock_.now() && settle_jobs()) break;
      if (streams_.any_woken()) continue;
      if (clock_.next() > clock_.now()) rounds_.look();
    }
    if (clock_.empty()) break;
    REHEARSE_CHECK(std::min(clock_.next(), faults_.next()) >= clock_.now(), "the clock would run backwards");
    clock_.advance(std::min(clock_.next(), faults_.next()));
    require_countable(clock_.now());
    if (clock_.now() == faults_.next()) change_links();
    while (clock_.next() == clock_.now()) {
      for (const Event& event : clock_.take()) dispatch(event);
      if (clock_.events() >= next_report_) report_progress();
    }
  }
  if (stuck()) {
    if (folding_.folded()) throw FoldedDeadlock();
    throw Deadlock(describe_deadlock({clock_.now(), codes_, ranks_, jobs_, streams_, hosts_, matching_, transfers_,
                                      codes_[kReported].job->collectives.buffered_messages()}));
  }
  if (!goes_on_) outcome_ = outcome();
  outcome_.events = clock_.events();
  outcome_.ops = accounts_.ops();
  for (const JobId job : jobs_.ids()) outcome_.job_step_ends.push_back(jobs_.step_ends(job));
  return std::move(outcome_);
}

// Nothing happens any more. Whether that is too early.
bool Simulator::stuck() const {
  if (!goes_on_) return !jobs_.all_stopped(kReported) || !hosts_.done(kReported);
  return !jobs_.all_met();
}

void Simulator::begin() {
  jobs_.open_single_step();
  if (faults_.next() == Time()) change_links();
  for (const JobId job : jobs_.ids()) {
    if (jobs_.start(job) > Time())
      clock_.at(jobs_.start(job), EventKind::job, job);
    else
      start_job(job);
  }
}

// Its streams begin: at the first step, or after those they have stopped at.
void Simulator::start_job(JobId job) {
  for (const RankId rank : jobs_.ranks(job)) hosts_.start(rank);
  for (const RankId rank : jobs_.ranks(job))
    for (const StreamId id : ranks_[rank].streams()) streams_.start(id);
}

void Simulator::dispatch(const Event& event) {
  switch (Clock::kind(event)) {
    case EventKind::kernels:
      kernels_.end(Clock::about<StreamId>(event), event.version);
      return;
    case EventKind::core_work: {
      const auto id = Clock::about<StreamId>(event);
      if (!cores_.end(id, event.version)) return;
      if (streams_.status(id) == Status::copying)
        mailboxes_.end_copy(id);
      else
        kernels_.end_on_cores(id);
      return;
    }
    case EventKind::copy:
      mailboxes_.end_copy(Clock::about<StreamId>(event));
      return;
    case EventKind::staged_copy:
      staged_sends_.end_copy(Clock::about<StreamId>(event));
      return;
    case EventKind::launch:
      streams_.wake(Clock::about<StreamId>(event));
      return;
    case EventKind::host_record:
      hosts_.reach_record(Clock::about<RankId>(event), event.version);
      return;
    case EventKind::activity: {
      const std::uint32_t flight = Clock::about<std::uint32_t>(event);
      if (network_.current(flight, event.version)) transfers_.end_activity(network_.finish(flight));
      return;
    }
    case EventKind::bytes:
      transfers_.move_bytes(Clock::about<TransferId>(event));
      return;
    case EventKind::core_transfer: {
      const auto id = Clock::about<TransferId>(event);
      if (cores_.end_transfer(id, event.version)) transfers_.end(id);
      return;
    }
    case EventKind::message:
      transfers_.arrive(Clock::about<std::uint32_t>(event));
      return;
    case EventKind::loaded:
      loaders_.arrive(Clock::about<StreamId>(event));
      return;
    case EventKind::job:
      start_job(Clock::about<JobId>(event));
      return;
  }
}

// All that the events so far have brought about.
void Simulator::settle_instant() {
  while (streams_.any_woken()) advance(streams_.take_woken());
  kernels_.follow_devices();
  kernels_.begin_ready();
  cores_.settle();
}

// Something has happened to the stream: begins the segment at its head if nothing holds it back.
void Simulator::advance(StreamId id) {
  const bool thread = cores_.threads();
  const Streams::Head head = streams_.reach(id, thread && cores_.gap_is_over(id));
  if (head == Streams::Head::asleep && thread) cores_.sleep(id);
  if (head != Streams::Head::free) return;
  if (streams_.place(id).passed_over()) {
    streams_.finish(id);
    return;
  }
  if (thread && cores_.begin_gap(id)) return;
  const Place& place = streams_.place(id);
  const Segment& segment = place.segment();
  if (segment.kind == SegmentKind::kernels) {
    if (segment.loads)
      loaders_.ask(id);
    else
      kernels_.make_ready(id);
    return;
  }
  if (place.code->launch_cost > Time()) {
    const Time launched = hosts_.launch(place, segment.ops.first);
    if (launched > clock_.now()) {
      streams_.set(id, Status::launching);
      streams_.blame_launch(id);
      hosts_.note_late(place.rank);
      clock_.at(launched, EventKind::launch, id);
      return;
    }
  }
  transfers_.post(id);
}

void Simulator::change_links() {
  faults_.apply(clock_.now(),
                [this](cluster::ResourceId link, std::int64_t per_s) { network_.set_capacity(link, per_s); });
}

// The end of an instant: takes what the first job reports once all its streams have stopped, and lets it go on. True if
// the simulation is over.
bool Simulator::settle_jobs() {
  const bool stopped = steps_ > 0 && !taken_ && jobs_.all_stopped(kReported) && hosts_.done(kReported);
  if (stopped) {
    outcome_ = outcome();
    network_.close_log();
    taken_ = true;
  }
  if (jobs_.all_met() && (taken_ || steps_ == 0)) return true;
  if (!stopped) return false;
  std::int64_t streams = 0;
  for (const RankId rank : jobs_.ranks(kReported))
    for (const StreamId id : ranks_[rank].streams()) streams += streams_.place(id).step == steps_ ? 1 : 0;
  jobs_.let_reported_go_on(streams);
  start_job(kReported);
  return false;
}

void Simulator::report_progress() {
  next_report_ = clock_.events() + kEventsPerReport;
  if (!options_.progress) return;
  std::int64_t ops = 0;
  for (const RankInfo& rank : ranks_) ops += rank.code->ops_per_step * rank.alike;
  options_.progress(goes_on_ ? jobs_.repeats_done()
                             : static_cast<double>(accounts_.ops()) /
                                   static_cast<double>(std::max<std::int64_t>(1, ops * steps_)));
}

}  // namespace rehearse::engine
