// The clock and the lanes: takes events in order, moves lanes through their items, and gathers the outcome. The rules
// of an instant are in simulator.h.
#include "sim/engine/simulator.h"

#include <algorithm>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
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

}  // namespace

Simulator::Simulator(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                     const collective::CollectiveModel& collectives, const cost::CostModel& costs,
                     const Options& options)
    : program_(program),
      cluster_(cluster),
      options_(options),
      steps_(options.steps),
      launch_cost_(options.launch_cost.ps()),
      sharing_(cluster.host_sharing()),
      cpu_(sharing_.cores > 0 && costs.device().cpu),
      buffered_(collectives.buffered_messages()),
      dispatch_(cpu_ ? costs.device().dispatch.ps() : 0),
      wake_(cpu_ ? costs.device().wake.ps() : 0),
      noise_(options.noise, options.sample, options.spared, grid.ranks()),
      noisy_kernels_(noise_.kernels()),
      noisy_transfers_(noise_.transfers()),
      faults_(options.noise, options.sample, cluster.resources()),
      code_(compile(program, grid)),
      network_(cluster, queue_, target(EventKind::activity)),
      step_runs_(network_, queue_, target(EventKind::message)),
      matching_(program, code_, grid, collectives, states_, network_, step_runs_),
      breakdown_(static_cast<std::size_t>(grid.ranks())) {
  REHEARSE_CHECK(grid.ranks() <= cluster.devices(), "{} ranks on {} devices", grid.ranks(), cluster.devices());
  REHEARSE_CHECK(steps_ > 0 && launch_cost_ >= 0, "{} steps, launch cost {} ps", steps_, launch_cost_);
  for (const RoleCode& role : code_.roles) times_.emplace_back(role, costs);
  const std::vector<int> roles = roles_of_ranks(program, grid);
  ranks_.resize(roles.size());
  hosts_.resize(roles.size());
  lanes_left_.assign(static_cast<std::size_t>(steps_), 0);
  for (std::size_t rank = 0; rank < roles.size(); ++rank) {
    const auto role = static_cast<std::size_t>(roles[rank]);
    make_lanes(static_cast<std::int32_t>(rank), code_.roles[role], times_[role]);
  }
  for (const int rank : options.recorded_ranks) ranks_.at(static_cast<std::size_t>(rank)).recorded = true;
  step_ends_.resize(static_cast<std::size_t>(steps_));
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
  ops_ += code.ops_per_step * steps_;
  if (!code.syncs.empty() && steps_ == 1) ++lanes_left_[0];
  for (std::int32_t stream = 0; stream < code.streams; ++stream) {
    Lane lane;
    lane.code = &code, lane.times = &times;
    lane.rank = index, lane.stream = static_cast<std::int8_t>(stream);
    lane.compute = code.role->streams[static_cast<std::size_t>(stream)].kind == program::StreamKind::compute;
    if (code.stream_slots[static_cast<std::size_t>(stream)].empty()) {
      lane.status = Status::done;
    } else {
      ++lanes_running_;
      if (lane.compute && rank.main_lane < 0) {
        lane.main = true;
        rank.main_lane = static_cast<LaneId>(lanes_.size());
      }
      lane.ends_steps = lane.main || steps_ == 1 || code.compute_streams.empty();
      if (lane.ends_steps)
        for (auto& left : lanes_left_) ++left;
    }
    lanes_.push_back(lane);
    held_.emplace_back();
    woken_.emplace_back();
  }
}

Outcome Simulator::run() {
  begin();
  for (;;) {
    drain();
    flush();
    if (queue_.next_time() > now_) network_.settle(now_);
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
  bool host_stuck = false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    host_stuck = host_stuck || (!ranks_[rank].code->syncs.empty() && hosts_[rank].step < steps_);
  if (lanes_running_ > 0 || host_stuck) throw Deadlock(describe_deadlock());
  return outcome();
}

void Simulator::begin() {
  if (steps_ == 1) {
    breakdown_.open(0);
    network_.open_log();
  }
  if (faults_.next() == 0) change_links();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!ranks_[rank].code->syncs.empty()) {
      set_limit(static_cast<std::int32_t>(rank));
      advance_host(static_cast<std::int32_t>(rank));
    }
  for (std::size_t id = 0; id < lanes_.size(); ++id) {
    Lane& lane = lanes_[id];
    if (lane.status == Status::done) continue;
    enter_slot(lane);
    work_.push_back(static_cast<LaneId>(id));
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
      record(index, -1, event.version, {kHostBlame, -1, -1});
      return;
    case EventKind::message:
      end_steps(step_runs_.arrived(static_cast<std::uint32_t>(index), now_));
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

// What ended a wait for several events: of those recorded at this instant the last that is named, whatever order they
// came in.
Cause Simulator::cause_of(const Rank& rank, Range waits, std::int32_t step, std::int32_t slot,
                          const Cause& woken_by) const {
  if (waits.last - waits.first < 2) return woken_by;
  for (std::int32_t w = waits.last - 1; w >= waits.first; --w) {
    const Wait& wait = rank.code->waits[static_cast<std::size_t>(w)];
    if (wait.stream < 0) continue;
    const Lane& recorder = lanes_[static_cast<std::size_t>(rank.first_lane + wait.stream)];
    if (recorder.idle_since == now_ && recorder.progress == rank.code->needed(wait, step, slot))
      return last_of(rank.first_lane + wait.stream);
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
  if (lane.gap_over) {
    if (lane.main) breakdown_.add(lane.rank, result::Share::host, lane.idle_since, now_);
    if (lane.main) lane.idle_since = now_;
  } else if (lane.main && now_ > lane.idle_since) {
    const Rank& rank = ranks_[static_cast<std::size_t>(lane.rank)];
    breakdown_.add_wait(lane.rank, lane.idle_since, now_, cause_of(rank, waits, lane.step, lane.slot, rank.ended));
    lane.idle_since = now_;
  }
  if (cpu_ && begin_gap(id)) return;
  if (item.kind == ItemKind::kernels) {
    lane.status = Status::ready;
    ready_.push_back(id);
    return;
  }
  if (launch_cost_ > 0) {
    lane.launch_base = launch_base(lane);
    const std::int64_t launched = launch_time(lane, item.first);
    if (launched > now_) {
      lane.status = Status::launching;
      if (lane.main) ranks_[static_cast<std::size_t>(lane.rank)].ended = {kHostBlame, -1, -1};
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
  if (item.records >= 0) record(lane.rank, lane.stream, lane.progress, last_of(id));
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
    if (lane.ends_steps) end_of_step(lane.step);
    if (++lane.step == steps_) {
      lane.status = Status::done;
      --lanes_running_;
      return false;
    }
  }
  lane.slot = slots[static_cast<std::size_t>(lane.slot_index)];
  const std::int32_t body = lane.code->slot_body[static_cast<std::size_t>(lane.slot)];
  const Range& range = lane.code->ranges[static_cast<std::size_t>(body * lane.code->streams + lane.stream)];
  lane.item = range.first;
  lane.item_last = range.last;
  if (noisy_kernels_ && !noise_.by_op()) lane.factor = noise_.kernel(lane.rank, lane.step, lane.slot, 0);
  return true;
}

void Simulator::end_of_step(std::int32_t step) {
  if (--lanes_left_[static_cast<std::size_t>(step)] > 0) return;
  step_ends_[static_cast<std::size_t>(step)] = Time::from_ps(now_);
  if (step != steps_ - 2) return;
  breakdown_.open(now_);
  network_.open_log();
}

// The lane's last op as what ends a wait: with what that op waited for itself, if it was posted when that ended.
Cause Simulator::last_of(LaneId id) const {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  Cause cause = lane.last();
  if (!lane.transferred || lane.main) return cause;
  const Woken& woken = woken_[static_cast<std::size_t>(id)];
  if (woken.at == lane.last_posted)
    cause.before = {woken.cause.blame, woken.from, woken.cause.posted, woken.cause.started};
  return cause;
}

// A stream of a rank (-1: its host) has completed its `progress`-th item, whose event something waits for.
void Simulator::record(std::int32_t index, std::int32_t stream, std::int64_t progress, const Cause& cause) {
  Rank& rank = ranks_[static_cast<std::size_t>(index)];
  for (std::uint32_t rest = rank.waiting; rest != 0; rest &= rest - 1) {
    const int waiting = __builtin_ctz(rest);
    const LaneId id = rank.first_lane + waiting;
    const Held& held = held_[static_cast<std::size_t>(id)];
    if (held.stream != stream || held.needed > progress) continue;
    rank.waiting &= ~(1u << waiting);
    if (id == rank.main_lane) {
      rank.ended = cause;
    } else if (lanes_[static_cast<std::size_t>(id)].step == steps_ - 1) {
      woken_[static_cast<std::size_t>(id)] = {cause, lanes_[static_cast<std::size_t>(id)].idle_since, now_};
    }
    wake(id);
  }
  if (rank.code->syncs.empty()) return;
  Host& host = hosts_[static_cast<std::size_t>(index)];
  if (host.held.wait >= 0 && host.held.stream == stream && host.held.needed <= progress) {
    host.ended = cause;
    advance_host(index);
  }
}

void Simulator::keep(const Lane& lane, std::int32_t position, std::int64_t start, std::int64_t end,
                     std::int64_t waited) {
  const OpRef& op = lane.code->ops[static_cast<std::size_t>(position)];
  records_.push_back({lane.rank, lane.step, lane.slot, op.body, op.op, start, end - start, waited});
}

void Simulator::change_links() {
  faults_.apply(now_, [this](cluster::ResourceId link, std::int64_t per_s) { network_.set_capacity(link, per_s); });
}

void Simulator::report_progress() {
  next_report_ = events_ + kEventsPerReport;
  if (options_.progress)
    options_.progress(static_cast<double>(ops_done_) / static_cast<double>(std::max<std::int64_t>(1, ops_)));
}

// After its last op a rank's compute stream idles: in a single step first beside what its other streams still do, then
// until the last rank has finished.
void Simulator::account_tails() {
  const std::int64_t end = step_ends_.back().ps();
  const result::Share share = code_.roles.size() > 1 ? result::Share::bubble : result::Share::other;
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
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
      breakdown_.add_wait(number, idle, last->idle_since, last_of(static_cast<LaneId>(last - lanes_.data())));
      idle = last->idle_since;
    }
    breakdown_.add(number, share, idle, end);
  }
}

Outcome Simulator::outcome() {
  Outcome result;
  result.step_ends = step_ends_;
  const Time before = steps_ > 1 ? step_ends_[step_ends_.size() - 2] : Time();
  result.step_time = step_ends_.back() - before;
  account_tails();
  result.breakdown_ps = breakdown_.mean(result.step_time.ps());
  BusyTime busy;
  for (const KernelTimes& times : times_) times.add_busy(busy);
  for (const PlanCode& plan : matching_.plans())
    if (plan.busy > 0) busy.add(plan.busy, static_cast<int>(plan.coverage), plan.low, plan.high);
  result.coverage_busy_s = busy.by_coverage_s;
  result.busy_low_s = busy.low_s, result.busy_high_s = busy.high_s, result.busy_s = busy.total_s;
  describe_links(network_, matching_, cluster_, before.ps(), step_ends_.back().ps(), result);
  result.slow_ranks = noise_.slow_ranks();
  result.faulty_links = faults_.counts();
  result.ops = ops_;
  result.events = events_;
  std::sort(records_.begin(), records_.end(), [](const result::OpRecord& a, const result::OpRecord& b) {
    return std::tie(a.rank, a.start_ps, a.slot, a.op) < std::tie(b.rank, b.start_ps, b.slot, b.op);
  });
  result.records = std::move(records_);
  return result;
}

}  // namespace rehearse::engine
