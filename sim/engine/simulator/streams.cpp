// See streams.h.
#include "sim/engine/simulator/streams.h"

#include <algorithm>

#include "sim/base/interrupt.h"
#include "sim/engine/simulator/hosts.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/op_records.h"

namespace rehearse::engine {

Streams::Streams(const Clock& clock, const Ranks& ranks, std::int32_t steps, Jobs& jobs, Accounts& accounts,
                 Hosts& hosts, OpRecords& records)
    : clock_(clock), ranks_(ranks), jobs_(jobs), accounts_(accounts), hosts_(hosts), records_(records) {
  for (const RankId rank : ranks.ids()) {
    check_interrupt();
    const RankInfo& info = ranks[rank];
    for (const StreamId id : info.streams()) {
      StreamState state;
      const std::int32_t stream = id - info.first_stream;
      state.place.code = info.code;
      state.place.rank = rank, state.place.stream = static_cast<std::int8_t>(stream);
      const bool compute =
          info.code->role->streams[static_cast<std::size_t>(stream)].kind == program::StreamKind::compute;
      if (compute) state.place.role = id == info.main_stream ? StreamRole::main : StreamRole::compute;
      if (info.code->slots_of(stream).empty()) {
        state.status = Status::done;
      } else {
        state.ends_steps = id == info.main_stream || steps == 1 || info.code->compute_streams.empty();
        jobs_.add_stream(info.code->job, state.ends_steps);
      }
      states_.push_back(state);
    }
  }
  unmet_.resize(states_.size());
  ended_.resize(states_.size(), kNobody);
  waiting_.resize(states_.size() + ranks.size());
}

void Streams::start(StreamId id) {
  StreamState& state = states_[id];
  if (state.place.code->slots_of(state.place.stream).empty()) return;
  state.status = Status::advancing;
  state.idle_since = clock_.now();
  accounts_.histories().begin(Accounts::cause(id), clock_.now());
  go_to_slot(state);
  work_.push_back(id);
}

UnmetWait Streams::unmet(RankId rank, IdRange<WaitId> waits, std::int32_t step, SlotId slot) const {
  const RankInfo& info = ranks_[rank];
  for (const WaitId id : waits) {
    const Wait& wait = info.code->waits[id];
    const std::int64_t needed = info.code->needed(wait, step, slot);
    const std::int64_t progress = wait.stream < 0 ? hosts_.progress(rank) : states_[info.stream(wait.stream)].progress;
    if (progress < needed) return {needed, id, wait.stream};
  }
  return {};
}

// Of the events recorded at this instant the last that is named, whatever order they came in. What the compute stream
// itself did before is nothing that it can ask for.
Cause Streams::who_ended(RankId rank, IdRange<WaitId> waits, std::int32_t step, SlotId slot, Cause woken_by) const {
  const RankInfo& info = ranks_[rank];
  for (WaitId id = waits.last; id != waits.first;) {
    id = id + -1;
    const Wait& wait = info.code->waits[id];
    if (wait.stream < 0) continue;
    const StreamId recorder = info.stream(wait.stream);
    if (recorder == info.main_stream) continue;
    const StreamState& state = states_[recorder];
    if (state.idle_since == clock_.now() && state.progress == info.code->needed(wait, step, slot))
      return Accounts::cause(recorder);
  }
  return woken_by;
}

Streams::Head Streams::reach(StreamId id, bool launched_late) {
  StreamState& state = states_[id];
  if (state.status == Status::done) return Head::held;
  const Segment& segment = state.place.segment();
  if (hosts_.holds(state.place, segment) &&
      !state.place.passed_over()) {  // the host does not launch what is passed over
    state.status = Status::held_by_host;
    return Head::held;
  }
  // What was met once stays so, and whoever woke the stream has met the wait that held it.
  const WaitId first = state.unchecked.exists() ? state.unchecked : segment.waits.first;
  if (first != segment.waits.last && sleeps(id, {first, segment.waits.last})) return Head::asleep;
  go_on(id, launched_late);
  return Head::free;
}

// Whether one of these waits of the segment at the head is not met.
bool Streams::sleeps(StreamId id, IdRange<WaitId> waits) {
  StreamState& state = states_[id];
  const Place& place = state.place;
  const UnmetWait held = unmet(place.rank, waits, place.step, place.slot);
  if (!held.wait.exists()) return false;
  unmet_[id] = held;
  state.unchecked = held.wait + 1;
  state.status = Status::waiting;
  waiting_[cause(place.rank, held.stream)] |= 1u << place.stream;
  return true;
}

// The stream's wait is over, if it had to wait. Who ended it is looked for only where somebody will ask.
void Streams::go_on(StreamId id, bool launched_late) {
  StreamState& state = states_[id];
  const Place& place = state.place;
  const Time now = clock_.now();
  const bool main = place.role == StreamRole::main, kept = records_.wanted(place.rank, place.step);
  Cause by = kNobody;
  if (now > state.idle_since && (kept || now > (main ? accounts_.opened() : asked_since(place.rank))))
    by = account_wait(id, launched_late);
  if (main) state.idle_since = now;
  if (kept && by != kLaunch) records_.release(id, now, by);
}

// Who ended the wait that is over now.
Cause Streams::account_wait(StreamId id, bool launched_late) {
  const StreamState& state = states_[id];
  const Place& place = state.place;
  const Cause by =
      launched_late ? kLaunch : who_ended(place.rank, place.segment().waits, place.step, place.slot, ended_[id]);
  if (place.role == StreamRole::main)
    accounts_.add_wait(place.rank, by, state.idle_since, clock_.now());
  else
    accounts_.histories().waited(Accounts::cause(id), by, clock_.now(), asked_since(place.rank));
  return by;
}

void Streams::finish(StreamId id) {
  StreamState& state = states_[id];
  const Segment& segment = state.place.segment();
  if (!state.place.passed_over())
    accounts_.count_ops(state.place.rank, segment.ops.size() * ranks_[state.place.rank].alike);
  state.idle_since = clock_.now();
  state.status = Status::advancing;
  state.unchecked = WaitId();
  ++state.progress;
  if (segment.awaited) record(state.place.rank, state.place.stream, state.progress);
  if (++state.place.at == state.last) {
    ++state.slot_index;
    if (!enter_slot(state)) return;
  }
  work_.push_back(id);
}

// Goes to the stream's slot_index, or on to the next step. False if that was the last.
bool Streams::enter_slot(StreamState& state) {
  Place& place = state.place;
  if (static_cast<std::size_t>(state.slot_index) == place.code->slots_of(place.stream).size()) {
    state.slot_index = 0;
    if (state.ends_steps) {
      if (jobs_.keeps_rank_steps()) jobs_.end_of_rank_step(place.rank, place.step);
      jobs_.end_of_step(place.code->job, place.step);
    }
    if (++place.step == jobs_.stop(place.code->job)) {
      state.status = Status::done;
      jobs_.stream_stopped(place.code->job);
      return false;
    }
  }
  go_to_slot(state);
  return true;
}

void Streams::go_to_slot(StreamState& state) {
  Place& place = state.place;
  if (place.role == StreamRole::main) ++main_slots_;
  place.slot = place.code->slots_of(place.stream)[static_cast<std::size_t>(state.slot_index)];
  const IdRange<SegmentId>& segments = place.code->segments_of(place.code->slot_body[place.slot], place.stream);
  place.at = segments.first;
  state.last = segments.last;
}

void Streams::record(RankId rank, std::int32_t stream, std::int64_t progress) {
  const RankInfo& info = ranks_[rank];
  const Cause by = cause(rank, stream);
  for (std::uint32_t rest = waiting_[by]; rest != 0; rest &= rest - 1) {
    const int waiting = __builtin_ctz(rest);
    const StreamId id = info.stream(waiting);
    if (unmet_[id].needed > progress) continue;
    waiting_[by] &= ~(1u << waiting);
    ended_[id] = by;
    wake(id);
  }
  if (!info.code->syncs.empty()) hosts_.recorded(rank, stream, progress, by);
}

void Streams::release(RankId rank, Cause by) {
  for (const StreamId id : ranks_[rank].streams()) {
    if (states_[id].status != Status::held_by_host) continue;
    ended_[id] = by;
    wake(id);
  }
}

}  // namespace rehearse::engine
