// The clock and the lanes: takes events in order, moves lanes through their items, and gathers the outcome. The rules
// of an instant are in simulator.h.
#include "sim/engine/simulator.h"

#include <algorithm>
#include <tuple>

#include "sim/account/blame.h"
#include "sim/account/grid_view.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/engine/collective_use.h"
#include "sim/engine/link_use.h"

namespace rehearse::engine {

namespace {

constexpr std::int64_t kEventsPerReport = 1 << 17;
// Half of what int64 holds: what happens next may be as far away again.
constexpr std::int64_t kLatest = INT64_MAX / 2;

[[noreturn]] void refuse_long_run() {
  throw InputError(
      Diagnostic{"", 0, 0, "",
                 fmt::format("the simulated time passes {}, the longest this program counts in picoseconds",
                             format_time(Time::from_ps(kLatest))),
                 "simulate fewer --steps, or look at the costs: is a step meant to take so long?"});
}

// Ranks on CPUs are this program's own, whose memory is an arena (execute/); their sends are copies.
bool in_arenas(const Job& job) {
  return job.costs.device().cpu && job.collectives.buffered_messages();
}

// Programs of all jobs as code, ranks one after the other.
std::vector<JobCode> lay_out(const std::vector<Job>& jobs) {
  std::vector<JobCode> codes;
  std::int32_t first_rank = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const program::Program& program = jobs[j].program;
    program::Link link = program::link(program, account::grid_view(program, jobs[j].grid));
    std::vector<program::Timeline> steps;
    if (in_arenas(jobs[j]))
      for (const program::Role& role : program.roles)
        steps.push_back(program::make_timeline(role, [&](Axis axis) { return jobs[j].grid.size(axis); }));
    ProgramCode code = compile(program, link, steps);
    codes.push_back({&jobs[j], std::move(link), std::move(code), first_rank});
    for (RoleCode& role : codes.back().code.roles) {
      role.job = static_cast<std::int32_t>(j);
      role.launch_cost = jobs[j].launch_cost.ps();
    }
    first_rank += jobs[j].grid.ranks();
  }
  return codes;
}

}  // namespace

Simulator::Simulator(const std::vector<Job>& jobs, const cluster::Cluster& cluster, const Options& options)
    : cluster_(cluster),
      options_(options),
      steps_(options.steps),
      goes_on_(jobs.size() > 1 || jobs[0].repeats != options.steps),
      sharing_(cluster.host_sharing()),
      cpu_(sharing_.cores > 0 && jobs[0].costs.device().cpu),
      buffered_(jobs[0].collectives.buffered_messages()),
      dispatch_(cpu_ ? jobs[0].costs.device().dispatch.ps() : 0),
      wake_(cpu_ ? jobs[0].costs.device().wake.ps() : 0),
      faults_(options.noise, options.sample, cluster.resources()),
      codes_(lay_out(jobs)),
      network_(cluster, queue_, target(EventKind::activity)),
      step_runs_(network_, queue_, target(EventKind::message)),
      matching_(codes_, cluster, states_, network_, step_runs_),
      breakdown_(static_cast<std::size_t>(codes_.back().first_rank + jobs.back().grid.ranks())) {
  REHEARSE_CHECK(jobs[0].grid.ranks() <= cluster.devices(), "{} ranks on {} devices", jobs[0].grid.ranks(),
                 cluster.devices());
  make_jobs(jobs);
  histories_.resize(lanes_.size() + ranks_.size());
  for (const int rank : options.recorded_ranks) ranks_.at(static_cast<std::size_t>(rank)).recorded = true;
  if (sharing_.cores > 0) {
    node_touched_.assign(static_cast<std::size_t>(cluster.nodes()), 0);
    core_transfers_.resize(node_touched_.size());
  }
}

void Simulator::make_lanes(std::int32_t index, const RoleCode& code, KernelTimes& times) {
  Rank& rank = ranks_[static_cast<std::size_t>(index)];
  rank.code = &code;
  rank.first_lane = static_cast<LaneId>(lanes_.size());
  REHEARSE_CHECK(code.streams <= 32, "{} has {} streams", code.role->name, code.streams);
  JobState& job = jobs_[static_cast<std::size_t>(code.job)];
  job.ops_per_step += code.ops_per_step;
  if (!code.syncs.empty() && steps_ == 1) ++job.lanes_per_step;
  for (std::int32_t stream = 0; stream < code.streams; ++stream) {
    Lane lane;
    lane.code = &code, lane.times = &times;
    lane.rank = index, lane.stream = static_cast<std::int8_t>(stream);
    lane.compute = code.role->streams[static_cast<std::size_t>(stream)].kind == program::StreamKind::compute;
    if (code.stream_slots[static_cast<std::size_t>(stream)].empty()) {
      lane.status = Status::done;
    } else {
      ++job.lanes_running;
      if (lane.compute && rank.main_lane < 0) {
        lane.main = true;
        rank.main_lane = static_cast<LaneId>(lanes_.size());
      }
      lane.ends_steps = lane.main || steps_ == 1 || code.compute_streams.empty();
      if (lane.ends_steps) ++job.lanes_per_step;
    }
    lanes_.push_back(lane);
    held_.emplace_back();
    ended_.push_back(kNobody);
    released_.emplace_back();
  }
}

Outcome Simulator::run() {
  begin();
  for (;;) {
    check_interrupt();
    drain();
    flush();
    if (queue_.next_time() > now_) {
      network_.settle(now_);
      if (goes_on_ && queue_.next_time() > now_ && settle_jobs()) break;
      if (!work_.empty()) continue;
    }
    if (queue_.empty()) break;
    REHEARSE_CHECK(queue_.next_time() >= now_, "the clock would run backwards");
    now_ = std::min(queue_.next_time(), faults_.next());
    if (now_ > kLatest) refuse_long_run();
    if (now_ == faults_.next()) change_links();
    while (queue_.next_time() == now_) {
      queue_.take(instant_);
      for (const Event& event : instant_) dispatch(event);
      events_ += static_cast<std::int64_t>(instant_.size());
      if (events_ >= next_report_) report_progress();
    }
  }
  if (stuck()) throw Deadlock(describe_deadlock());
  if (!goes_on_) outcome_ = outcome();
  describe_jobs(outcome_);
  return std::move(outcome_);
}

bool Simulator::hosts_done(const JobState& job) const {
  for (auto rank = static_cast<std::size_t>(job.first_rank); rank < static_cast<std::size_t>(job.last_rank); ++rank)
    if (!ranks_[rank].code->syncs.empty() && hosts_[rank].step < job.stop) return false;
  return true;
}

// Nothing happens any more. Whether that is too early.
bool Simulator::stuck() const {
  if (!goes_on_) return jobs_[0].lanes_running > 0 || !hosts_done(jobs_[0]);
  return std::any_of(jobs_.begin(), jobs_.end(), [](const JobState& job) { return !job.met; });
}

void Simulator::begin() {
  if (steps_ == 1) {
    breakdown_.open(0);
    network_.open_log();
    reported_from_ = 0;
  }
  if (faults_.next() == 0) change_links();
  for (std::size_t job = 0; job < jobs_.size(); ++job) {
    if (jobs_[job].start > 0)
      queue_.push(jobs_[job].start, target(EventKind::job, static_cast<std::int32_t>(job)), 0);
    else
      start_job(static_cast<std::int32_t>(job));
  }
}

void Simulator::dispatch(const Event& event) {
  const auto index = static_cast<std::int32_t>(event.target & kIndexMask);
  switch (static_cast<EventKind>(event.target >> kIndexBits)) {
    case EventKind::kernels:
      if (lanes_[static_cast<std::size_t>(index)].version == event.version) end_kernels(index);
      return;
    case EventKind::activity:
      if (network_.current(static_cast<std::uint32_t>(index), event.version)) {
        const std::int32_t owner = network_.finish(static_cast<std::uint32_t>(index));
        if (StepRuns::is_message(owner))
          end_steps(step_runs_.sent(owner, now_));
        else
          end_activity(owner);
      }
      return;
    case EventKind::bytes:
      move_bytes(index);
      return;
    case EventKind::launch:
      wake(index);
      return;
    case EventKind::host_record:
      hosts_[static_cast<std::size_t>(index)].progress = event.version;
      histories_.tell(host_of(index), result::Share::host, now_, asked_since(index));
      record(index, -1, event.version);
      return;
    case EventKind::message:
      end_steps(step_runs_.arrived(static_cast<std::uint32_t>(index), now_));
      return;
    case EventKind::job:
      start_job(index);
      return;
    case EventKind::cores:
      if (matching_.transfer(index).version == event.version) end_core_transfer(index);
      return;
  }
}

void Simulator::drain() {
  while (!work_.empty()) {
    const LaneId id = work_.back();
    work_.pop_back();
    advance(id);
  }
}

void Simulator::flush() {
  for (const std::int32_t index : changed_ranks_) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    rank.changed = false;
    for (const std::int32_t stream : rank.code->compute_streams) {
      const LaneId id = rank.first_lane + stream;
      const Lane& lane = lanes_[static_cast<std::size_t>(id)];
      if (lane.status == Status::running && lane.state != rank.state) change_state(id);
    }
  }
  changed_ranks_.clear();
  for (const LaneId id : ready_) begin_kernels(id);
  ready_.clear();
  for (const std::int32_t node : touched_nodes_) share_node(node);
  touched_nodes_.clear();
}

Simulator::Held Simulator::unmet(std::int32_t index, Range waits, std::int32_t step, std::int32_t slot) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(index)];
  for (std::int32_t w = waits.first; w < waits.last; ++w) {
    const Wait& wait = rank.code->waits[static_cast<std::size_t>(w)];
    const std::int64_t needed = rank.code->needed(wait, step, slot);
    const std::int64_t progress = wait.stream < 0
                                      ? hosts_[static_cast<std::size_t>(index)].progress
                                      : lanes_[static_cast<std::size_t>(rank.first_lane + wait.stream)].progress;
    if (progress < needed) return {needed, w, wait.stream};
  }
  return {};
}

// Who ended a wait: of the events recorded at this instant the last that is named, whatever order they came in. What
// the compute stream itself did before is nothing that it can ask for.
Teller Simulator::who_ended(const Rank& rank, Range waits, std::int32_t step, std::int32_t slot,
                            Teller woken_by) const {
  for (std::int32_t w = waits.last - 1; w >= waits.first; --w) {
    const Wait& wait = rank.code->waits[static_cast<std::size_t>(w)];
    if (wait.stream < 0 || rank.first_lane + wait.stream == rank.main_lane) continue;
    const Lane& recorder = lanes_[static_cast<std::size_t>(rank.first_lane + wait.stream)];
    if (recorder.idle_since == now_ && recorder.progress == rank.code->needed(wait, step, slot))
      return rank.first_lane + wait.stream;
  }
  return woken_by;
}

// The lane's item is at the head of its stream: starts it if nothing holds it back.
void Simulator::advance(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (lane.status == Status::done) return;
  const Item& item = item_of(lane);
  if (held_by_host(lane, item)) {
    lane.status = Status::held_by_host;
    return;
  }
  const Range waits{item.wait_first, item.wait_last};
  if (waits.first != waits.last) {
    const Held held = unmet(lane.rank, waits, lane.step, lane.slot);
    if (held.wait >= 0) {
      held_[static_cast<std::size_t>(id)] = held;
      lane.status = Status::waiting;
      lane.slept = true;
      ranks_[static_cast<std::size_t>(lane.rank)].waiting |= 1u << lane.stream;
      return;
    }
  }
  Teller by = kNobody;
  if (now_ > lane.idle_since) {
    by = lane.gap_over ? kLaunch
                       : who_ended(ranks_[static_cast<std::size_t>(lane.rank)], waits, lane.step, lane.slot,
                                   ended_[static_cast<std::size_t>(id)]);
    tell_wait(id, by);
  }
  if (by != kLaunch && recording(lane)) release(id, by);
  if (cpu_ && begin_gap(id)) return;
  if (item.kind == ItemKind::kernels) {
    lane.status = Status::ready;
    ready_.push_back(id);
    return;
  }
  if (lane.code->launch_cost > 0) {
    lane.launch_base = launch_base(lane);
    const std::int64_t launched = launch_time(lane, item.first);
    if (launched > now_) {
      lane.status = Status::launching;
      ended_[static_cast<std::size_t>(id)] = kLaunch;
      queue_.push(launched, target(EventKind::launch, id), 0);
      return;
    }
  }
  post(id);
}

void Simulator::finish_item(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  ops_done_ += item.last - item.first;
  lane.idle_since = now_;
  lane.status = Status::advancing;
  ++lane.progress;
  if (item.awaited) record(lane.rank, lane.stream, lane.progress);
  if (++lane.item == lane.item_last) {
    ++lane.slot_index;
    if (!enter_slot(lane)) return;
  }
  work_.push_back(id);
}

// Goes to the lane's slot_index, or on to the next step. False if that was the last.
bool Simulator::enter_slot(Lane& lane) {
  const std::vector<std::int32_t>& slots = lane.code->stream_slots[static_cast<std::size_t>(lane.stream)];
  if (static_cast<std::size_t>(lane.slot_index) == slots.size()) {
    lane.slot_index = 0;
    if (lane.ends_steps) end_of_step(lane.code->job, lane.step);
    if (++lane.step == job_of(lane).stop) {
      lane.status = Status::done;
      --job_of(lane).lanes_running;
      return false;
    }
  }
  go_to_slot(lane);
  return true;
}

void Simulator::go_to_slot(Lane& lane) {
  const std::vector<std::int32_t>& slots = lane.code->stream_slots[static_cast<std::size_t>(lane.stream)];
  lane.slot = slots[static_cast<std::size_t>(lane.slot_index)];
  const std::int32_t body = lane.code->slot_body[static_cast<std::size_t>(lane.slot)];
  const Range& range = lane.code->ranges[static_cast<std::size_t>(body * lane.code->streams + lane.stream)];
  lane.item = range.first;
  lane.item_last = range.last;
  if (!noisy_kernels_) return;
  const JobState& job = job_of(lane);
  if (!job.noise.by_op()) lane.factor = job.noise.kernel(lane.rank - job.first_rank, lane.step, lane.slot, 0);
}

void Simulator::end_of_step(std::int32_t index, std::int32_t step) {
  JobState& job = jobs_[static_cast<std::size_t>(index)];
  while (static_cast<std::size_t>(step) >= job.lanes_left.size()) job.lanes_left.push_back(job.lanes_per_step);
  if (--job.lanes_left[static_cast<std::size_t>(step)] > 0) return;
  job.step_ends.push_back(Time::from_ps(now_));
  if (goes_on_) end_repeat(index);
  if (index > 0 || step != steps_ - 2) return;
  breakdown_.open(now_);
  network_.open_log();
  reported_from_ = now_;
}

// From when on the rank's compute stream may ask what others did: it waits, in what is counted. Of a rank without one
// the end of its other streams may (account_tails).
std::int64_t Simulator::asked_since(std::int32_t index) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(index)];
  if (rank.main_lane < 0) return breakdown_.from();
  const Lane& main = lanes_[static_cast<std::size_t>(rank.main_lane)];
  return main.status == Status::running ? kNever : std::max(main.idle_since, breakdown_.from());
}

// The lane did `share` until then; of a main lane it goes into the breakdown.
void Simulator::tell(LaneId id, result::Share share, std::int64_t until) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (!lane.main) return histories_.tell(id, share, until, asked_since(lane.rank));
  breakdown_.add(lane.rank, share, lane.idle_since, until);
  lane.idle_since = until;
}

// The lane's wait is over, thanks to `by`.
void Simulator::tell_wait(LaneId id, Teller by) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (!lane.main) return histories_.tell_by(id, by, now_, asked_since(lane.rank));
  histories_.each(by, lane.idle_since, now_, [&](result::Share share, std::int64_t from, std::int64_t to) {
    breakdown_.add(lane.rank, share, from, to);
  });
  lane.idle_since = now_;
}

// A stream of a rank (-1: its host) has completed its `progress`-th item, whose event something waits for.
void Simulator::record(std::int32_t index, std::int32_t stream, std::int64_t progress) {
  Rank& rank = ranks_[static_cast<std::size_t>(index)];
  const Teller by = stream < 0 ? host_of(index) : rank.first_lane + stream;
  for (std::uint32_t rest = rank.waiting; rest != 0; rest &= rest - 1) {
    const int waiting = __builtin_ctz(rest);
    const LaneId id = rank.first_lane + waiting;
    const Held& held = held_[static_cast<std::size_t>(id)];
    if (held.stream != stream || held.needed > progress) continue;
    rank.waiting &= ~(1u << waiting);
    ended_[static_cast<std::size_t>(id)] = by;
    wake(id);
  }
  if (rank.code->syncs.empty()) return;
  Host& host = hosts_[static_cast<std::size_t>(index)];
  if (host.held.wait >= 0 && host.held.stream == stream && host.held.needed <= progress) {
    host.ended = by;
    advance_host(index);
  }
}

void Simulator::release(LaneId id, Teller by) {
  released_[static_cast<std::size_t>(id)] = {now_, by};
}

std::int32_t Simulator::stream_of(std::int32_t index, Teller by) const {
  if (by < 0) return -1;
  const Rank& rank = ranks_[static_cast<std::size_t>(index)];
  if (by != host_of(index)) return by - rank.first_lane;
  const SyncCode& sync = rank.code->syncs.front();
  return rank.code->role->bodies[static_cast<std::size_t>(sync.body)].ops[static_cast<std::size_t>(sync.op)].stream;
}

result::OpRecord Simulator::record_of(LaneId id, std::int32_t position, std::int64_t start, std::int64_t end) const {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const OpRef& op = lane.code->ops[static_cast<std::size_t>(position)];
  const Release& released = released_[static_cast<std::size_t>(id)];
  result::OpRecord record{lane.rank, lane.step, lane.slot, op.body, op.op, start, end - start};
  record.queued_ps = start - released.at;
  record.woken_by = stream_of(lane.rank, released.by);
  return record;
}

void Simulator::change_links() {
  faults_.apply(now_, [this](cluster::ResourceId link, std::int64_t per_s) { network_.set_capacity(link, per_s); });
}

void Simulator::report_progress() {
  next_report_ = events_ + kEventsPerReport;
  if (!options_.progress) return;
  const std::int64_t ops = jobs_[0].ops_per_step * steps_;
  options_.progress(goes_on_ ? repeats_done()
                             : static_cast<double>(ops_done_) / static_cast<double>(std::max<std::int64_t>(1, ops)));
}

// When the last lane that ends steps has ended, by role.
std::vector<std::int64_t> Simulator::last_ends() const {
  const std::vector<RoleCode>& roles = codes_[0].code.roles;
  std::vector<std::int64_t> ends(roles.size());
  for (LaneId id = jobs_[0].first_lane; id < jobs_[0].last_lane; ++id) {
    const Lane& lane = lanes_[static_cast<std::size_t>(id)];
    std::int64_t& end = ends[static_cast<std::size_t>(lane.code - roles.data())];
    if (lane.ends_steps) end = std::max(end, lane.idle_since);
  }
  return ends;
}

// After its last op a rank's compute stream idles: in a single step first beside what its other streams still do, then
// until the last rank has finished, of its own role or of another.
void Simulator::account_tails() {
  const std::int64_t end = jobs_[0].step_ends.back().ps();
  const std::vector<std::int64_t> ends = last_ends();
  for (std::size_t index = 0; index < static_cast<std::size_t>(jobs_[0].last_rank); ++index) {
    const Rank& rank = ranks_[index];
    std::int64_t idle = rank.main_lane < 0 ? 0 : lanes_[static_cast<std::size_t>(rank.main_lane)].idle_since;
    const auto number = static_cast<std::int32_t>(index);
    const Lane* last = nullptr;
    for (std::int32_t stream = 0; stream < rank.code->streams; ++stream) {
      const Lane& lane = lanes_[static_cast<std::size_t>(rank.first_lane + stream)];
      if (lane.ends_steps && lane.idle_since > idle && (last == nullptr || lane.idle_since > last->idle_since))
        last = &lane;
    }
    if (last != nullptr) {
      histories_.each(
          static_cast<Teller>(last - lanes_.data()), idle, last->idle_since,
          [&](result::Share share, std::int64_t from, std::int64_t to) { breakdown_.add(number, share, from, to); });
      idle = last->idle_since;
    }
    const auto role = static_cast<std::size_t>(rank.code - codes_[0].code.roles.data());
    bool others = false;
    for (std::size_t r = 0; r < ends.size(); ++r) others |= r != role && ends[r] == end;
    breakdown_.add(number, account::late(!others), idle, end);
  }
}

// What the first job reports.
Outcome Simulator::outcome() {
  Outcome result;
  const JobState& job = jobs_[0];
  result.step_ends = job.step_ends;
  const Time end = result.step_ends.back(),
             before = steps_ > 1 ? result.step_ends[result.step_ends.size() - 2] : Time();
  result.step_time = end - before;
  account_tails();
  result.breakdown_ps = breakdown_.mean(static_cast<std::size_t>(job.last_rank), result.step_time.ps());
  BusyTime busy;
  for (std::size_t role = 0; role < codes_[0].code.roles.size(); ++role) times_[role].add_busy(busy);
  for (const PlanCode& plan : matching_.plans())
    if (plan.busy > 0 && plan.job == 0) busy.add(plan.busy, static_cast<int>(plan.coverage), plan.low, plan.high);
  result.coverage_busy_s = busy.by_coverage_s;
  result.busy_low_s = busy.low_s, result.busy_high_s = busy.high_s, result.busy_s = busy.total_s;
  describe_collectives(matching_, result);
  describe_links(network_, matching_, cluster_, before.ps(), end.ps(), result);
  result.slow_ranks = job.noise.slow_ranks();
  result.faulty_links = faults_.counts();
  std::sort(records_.begin(), records_.end(), [](const result::OpRecord& a, const result::OpRecord& b) {
    return std::tie(a.rank, a.start_ps, a.slot, a.op) < std::tie(b.rank, b.start_ps, b.slot, b.op);
  });
  result.records = std::move(records_);
  return result;
}

}  // namespace rehearse::engine
