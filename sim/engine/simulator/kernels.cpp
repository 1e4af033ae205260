// See kernels.h.
#include "sim/engine/simulator/kernels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"
#include "sim/engine/simulator/shared_cores.h"

namespace rehearse::engine {

Kernels::Kernels(Clock& clock, const IdVector<JobId, JobCode>& codes, const Ranks& ranks, const Jobs& jobs,
                 Streams& streams, Hosts& hosts, Devices& devices, SharedCores& cores, OpRecords& records)
    : clock_(clock),
      ranks_(ranks),
      jobs_(jobs),
      streams_(streams),
      hosts_(hosts),
      devices_(devices),
      cores_(cores),
      records_(records),
      noisy_(jobs.noisy_kernels()),
      runs_(streams.size()),
      slot_factors_(noisy_ ? streams.size() : 0) {
  for (const JobCode& job : codes) {
    std::vector<KernelTimes> of_roles;
    std::map<const cost::CostModel*, KernelCosts*> of_models;
    for (const RoleCode& role : job.code.roles) {
      KernelCosts*& costs = of_models[role.costs];
      if (costs == nullptr)
        costs = costs_.emplace_back(std::make_unique<KernelCosts>(*role.costs, job.code.kernel_kinds)).get();
      of_roles.emplace_back(role, *costs);
    }
    times_.push_back(std::move(of_roles));
  }
  for (const StreamId id : streams.ids()) {
    const RoleCode& code = *streams.place(id).code;
    const auto role = static_cast<std::size_t>(&code - codes[code.job].code.roles.data());
    runs_[id].times = &times_[code.job][role];
  }
}

void Kernels::add_busy(JobId job, BusyTime& sum) const {
  for (const KernelTimes& role : times_[job]) role.add_busy(sum);
}

Factor Kernels::factor(StreamId id, Position position) const {
  const Place& place = streams_.place(id);
  const Noise& noise = jobs_.noise(place.code->job);
  if (!noise.by_op()) return slot_factors_[id].factor;
  return noise.kernel(ranks_[place.rank].number, place.step, place.slot.value(), place.code->ops[position].op);
}

Factor Kernels::load(StreamId id, Position position) const {
  const Place& place = streams_.place(id);
  const AttentionLoads* loads = jobs_.attention_loads(place.code->job);
  if (loads == nullptr) return kFactorOne;
  const program::Op& op = place.code->op(position);
  const auto* a = std::get_if<program::Attention>(&op.shape);
  const bool flash = a != nullptr && (a->part == program::AttentionPart::flash_forward ||
                                      a->part == program::AttentionPart::flash_backward);
  if (!flash) return kFactorOne;
  const int slot = place.code->role->slots[static_cast<std::size_t>(place.slot.value())].micro_batch;
  return loads->of(ranks_[place.rank].number, place.step, slot + op.micro_batch_delta);
}

Time Kernels::noisy(Time time, StreamId id, Position position) const {
  const Place& place = streams_.place(id);
  time = times(time, load(id, position));
  const MachineJitter& jitter = jobs_.jitter(place.code->job);
  if (jitter.any())
    time = jitter.kernel(time, cost::kernel_class(place.code->op(position).shape),
                         {ranks_[place.rank].number, place.step, place.slot.value(),
                          static_cast<std::int32_t>(place.code->ops[position].op)});
  return times(time, factor(id, position));
}

void Kernels::draw_slot_factor(StreamId id) {
  const Place& place = streams_.place(id);
  const Noise& noise = jobs_.noise(place.code->job);
  SlotFactor& known = slot_factors_[id];
  if (noise.by_op() || (known.step == place.step && known.slot == place.slot)) return;
  known = {noise.kernel(ranks_[place.rank].number, place.step, place.slot.value(), 0), place.step, place.slot};
}

void Kernels::begin_ready() {
  for (const StreamId id : ready_) begin(id);
  ready_.clear();
}

void Kernels::begin(StreamId id) {
  KernelRun& run = runs_[id];
  const Place& place = streams_.place(id);
  const RoleCode& code = *place.code;
  const IdRange<Position> kernels = place.segment().ops;
  const Time now = clock_.now();
  streams_.set(id, Status::running);
  if (noisy_) draw_slot_factor(id);
  run.position = kernels.first;
  run.state = place.computes() ? devices_.state(place.rank) : kAlone;
  run.table = &run.times->in_state(run.state, devices_.states());
  run.one_state = true;
  run.anchor = now;
  bool gaps = false;
  if (code.launch_cost > Time()) {
    run.launch_base = hosts_.launch_base(place);
    run.anchor = std::max(now, launch_time(run, code, kernels.first));
    gaps = launch_time(run, code, kernels.last + -1) > now;
    if (gaps) hosts_.note_late(place.rank);
  }
  // What documents make of a kernel is the rank's own, so it is counted as it was, recorded or not.
  run.account_each = gaps || records_.wanted(place.rank, place.step) || jobs_.attention_loads(code.job) != nullptr;
  run.sum_each = gaps || noisy_;
  run.kernel_start = run.anchor;
  if (cores_.serve(place)) {
    begin_on_cores(id);
    return;
  }
  const Time all = run.table->segment(place.at);
  run.left = duration(run, id, kernels.first);
  if (run.sum_each)
    schedule(id);
  else
    clock_.at(now + all, EventKind::kernels, id, ++run.version);
}

// The segment's end, from the kernel in progress on.
void Kernels::schedule(StreamId id) {
  KernelRun& run = runs_[id];
  const Place& place = streams_.place(id);
  Time end = run.anchor + run.left;
  if (run.sum_each) {
    for (const Position position : IdRange<Position>{run.position + 1, place.segment().ops.last})
      end = std::max(end, launch_time(run, *place.code, position)) + duration(run, id, position);
  } else {
    end += run.table->segment(place.at) - run.table->before(run.position) - run.table->kernel(run.position);
  }
  clock_.at(end, EventKind::kernels, id, ++run.version);
}

void Kernels::end(StreamId id, std::uint32_t version) {
  KernelRun& run = runs_[id];
  if (run.version != version) return;
  const Place& place = streams_.place(id);
  if (cores_.serve(place)) {  // its launch
    begin_on_cores(id);
    return;
  }
  if (run.one_state && !run.account_each) {
    run.table->count_segment(place.at, alike(place.rank));  // for coverage, as if there were no noise
  } else {
    run_until(id, clock_.now());
    REHEARSE_CHECK(run.position == place.segment().ops.last, "a segment ended before its kernels");
  }
  // Kernels that were accounted for one by one are accounted for already.
  streams_.spent(id, share_of(place), clock_.now());
  streams_.finish(id);
}

// Completes the kernels of the segment that have ended by `time` and brings up the next.
void Kernels::run_until(StreamId id, Time time) {
  const KernelRun& run = runs_[id];
  if (run.anchor + run.left > time) return;
  if (run.account_each || noisy_)
    complete_one_by_one(id, time);
  else
    complete_together(id, time);
}

void Kernels::complete_together(StreamId id, Time time) {
  KernelRun& run = runs_[id];
  const Place& place = streams_.place(id);
  const std::int64_t ranks = alike(place.rank);
  const Position last = place.segment().ops.last;
  Time end = run.anchor + run.left;
  run.table->count_time(run.position, run.left, ranks);
  const Position first = ++run.position;
  for (; run.position < last; ++run.position) {
    run.left = run.table->kernel(run.position);
    if (end + run.left > time) break;
    end += run.left;
  }
  run.table->count_kernels(first, run.position, ranks);
  run.anchor = run.kernel_start = end;
}

// Launches come between kernels, or each is recorded.
void Kernels::complete_one_by_one(StreamId id, Time time) {
  KernelRun& run = runs_[id];
  const Place& place = streams_.place(id);
  const Position last = place.segment().ops.last;
  for (;;) {
    const Time end = run.anchor + run.left;
    if (end > time) return;
    run.table->count_time(run.position, run.left, alike(place.rank));
    complete(id, end);
    if (++run.position == last) return;
    run.anchor = run.sum_each ? std::max(end, launch_time(run, *place.code, run.position)) : end;
    run.kernel_start = run.anchor;
    run.left = duration(run, id, run.position);
  }
}

// The kernel in progress has ended.
void Kernels::complete(StreamId id, Time end) {
  const KernelRun& run = runs_[id];
  const Place& place = streams_.place(id);
  if (records_.wanted(place.rank, place.step)) records_.keep(id, place, run.position, run.kernel_start, end);
  streams_.spent(id, result::Share::host, run.kernel_start);
  streams_.spent(id, share_of(place), end);
}

void Kernels::follow_devices() {
  devices_.for_changed([this](RankId rank, StateId to) {
    const RankInfo& info = ranks_[rank];
    for (const std::int32_t stream : info.code->compute_streams) {
      const StreamId id = info.stream(stream);
      if (streams_.status(id) != Status::running || runs_[id].state == to) continue;
      if (cores_.shared())
        cores_.touch(rank);
      else
        change_state(id, to);
    }
  });
}

// What is left of the kernel in progress takes its share of the new duration.
void Kernels::change_state(StreamId id, StateId to) {
  KernelRun& run = runs_[id];
  const Time now = clock_.now();
  run_until(id, now);
  const Place& place = streams_.place(id);
  REHEARSE_CHECK(run.position < place.segment().ops.last, "a segment went on past its end");
  KernelTable& table = run.times->in_state(to, devices_.states());
  table.segment(place.at);
  const Time changed = table.kernel(run.position);
  const bool begun = run.kernel_start < now;
  if (begun) {
    const Time whole = run.table->kernel(run.position), done = now - run.anchor;
    run.table->count_time(run.position, done, alike(place.rank));
    run.left = whole == Time() ? Time() : Time::from_ps(mul_div_up((run.left - done).ps(), changed.ps(), whole.ps()));
    run.anchor = now;
  }
  run.state = to;
  run.table = &table;
  if (!begun) run.left = duration(run, id, run.position);
  run.one_state = false;
  schedule(id);
}

// The stream's kernel at `position` is next, from `anchor` on.
void Kernels::begin_on_cores(StreamId id) {
  KernelRun& run = runs_[id];
  if (run.anchor > clock_.now()) {  // not launched yet
    streams_.set(id, Status::launching);
    cores_.wait_for_launch(id);
    clock_.at(run.anchor, EventKind::kernels, id, ++run.version);
    return;
  }
  streams_.set(id, Status::running);
  run.state = devices_.state(streams_.place(id).rank);
  run.table = &run.times->in_state(run.state, devices_.states());
  cores_.begin_kernel(id, duration(run, id, run.position));
}

Kernels::Changed Kernels::set_state(StreamId id, StateId state) {
  KernelRun& run = runs_[id];
  KernelTable& table = run.times->in_state(state, devices_.states());
  const Changed changed{run.table->kernel(run.position), table.kernel(run.position)};
  run.state = state;
  run.table = &table;
  return changed;
}

void Kernels::end_on_cores(StreamId id) {
  KernelRun& run = runs_[id];
  const Place& place = streams_.place(id);
  const Time now = clock_.now();
  complete(id, now);
  if (++run.position == place.segment().ops.last) {
    streams_.finish(id);
    return;
  }
  run.anchor = now + cores_.dispatch(id, place.code->ops[run.position].op);
  if (place.code->launch_cost > Time()) run.anchor = std::max(run.anchor, launch_time(run, *place.code, run.position));
  run.kernel_start = run.anchor;
  begin_on_cores(id);
}

}  // namespace rehearse::engine
