// The streams of all ranks: where each is in its program, what it is doing, and what holds it back. A stream's segment
// is reached when it is at the head; what it waits for is the progress of other streams of its rank, or of the rank's
// host. Whoever completes a segment finishes it here, which records its event, wakes who waited for that, and brings
// the next segment to the head. What a segment does is none of this part's business (kernels.h, transfers.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/code.h"
#include "sim/engine/ids.h"
#include "sim/engine/simulator/accounts.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/ranks.h"

namespace rehearse::engine {

class Hosts;
class Jobs;
class OpRecords;

enum class Status : unsigned char {
  advancing,
  waiting,       // for other streams of its rank or its host
  held_by_host,  // its segment is behind a HostSync
  loading,       // until its rank's next micro-batch is there
  launching,     // until the segment, or the next kernel of it, is launched
  ready,         // kernels: to begin at the end of the instant
  running,       // a kernel
  transferring,  // has posted
  copying,       // one leg of buffered messages
  done
};

// What a stream does for its rank.
enum class StreamRole : unsigned char {
  communication,
  compute,  // transfers interfere with its kernels
  main      // the same, and the rank's breakdown is about this one
};

// Where a stream is in the program.
struct Place {
  const RoleCode* code = nullptr;
  RankId rank;
  std::int32_t step = 0;
  SlotId slot{0};
  SegmentId at{0};
  std::int8_t stream = 0;  // of its rank
  StreamRole role = StreamRole::communication;

  const Segment& segment() const { return code->segments[at]; }
  bool computes() const { return role != StreamRole::communication; }
  // The slot's body is not of this step (program::Body::every), or the segment of none that is simulated.
  bool passed_over() const { return segment().early || !code->runs(step, slot); }
};

// The wait that a stream or host is held by.
struct UnmetWait {
  std::int64_t needed = 0;  // progress
  WaitId wait;              // none: none is unmet
  std::int32_t stream = 0;  // whose progress; -1: the host's
};

class Streams {
 public:
  Streams(const Clock& clock, const Ranks& ranks, std::int32_t steps, Jobs& jobs, Accounts& accounts, Hosts& hosts,
          OpRecords& records);

  // The first segment of the step that the stream has come to is at the head, if it has any.
  void start(StreamId id);

  // Streams that something has happened to, and the last of them.
  bool any_woken() const { return !work_.empty(); }
  StreamId take_woken() {
    const StreamId id = work_.back();
    work_.pop_back();
    return id;
  }
  void wake(StreamId id) {
    states_[id].status = Status::advancing;
    work_.push_back(id);
  }
  // Wakes those of a rank whose segment was behind the host.
  void release(RankId rank, Cause by);

  enum class Head : unsigned char { free, held, asleep };
  // Looks at the segment at the head: whether it may begin, and if not, whether its thread sleeps until it may.
  // `launched_late`: the time since it might have was not a wait for others.
  Head reach(StreamId id, bool launched_late);
  // The segment at the head has ended.
  void finish(StreamId id);
  // A stream of a rank (-1: its host) has completed its `progress`-th segment, whose event something waits for.
  void record(RankId rank, std::int32_t stream, std::int64_t progress);

  // The first of a rank's waits in a slot that is not met.
  UnmetWait unmet(RankId rank, IdRange<WaitId> waits, std::int32_t step, SlotId slot) const;
  // Who ended a wait that is over, given who woke the one that waited.
  Cause who_ended(RankId rank, IdRange<WaitId> waits, std::int32_t step, SlotId slot, Cause woken_by) const;
  // The stream's wait will have been ended by its launch.
  void blame_launch(StreamId id) { ended_[id] = kLaunch; }

  // The stream did `share` up to `until`; of a main stream it goes into the breakdown.
  void spent(StreamId id, result::Share share, Time until) {
    StreamState& state = states_[id];
    if (state.place.role == StreamRole::main) {
      accounts_.add(state.place.rank, share, state.idle_since, until);
      state.idle_since = until;
    } else if (until > accounts_.opened()) {  // else nobody asks, and no more need be looked at
      accounts_.histories().spent(Accounts::cause(id), share, until, asked_since(state.place.rank));
    }
  }
  std::int64_t stands_for(RankId rank) const { return accounts_.stands_for(rank); }
  // How often main streams have come to a slot.
  std::int64_t main_slots() const { return main_slots_; }
  // From when on the rank's compute stream may ask what others did: it waits, in what is counted. Of a rank without
  // one the end of its other streams may (outcome.cpp).
  Time asked_since(RankId rank) const {
    const StreamId id = ranks_[rank].main_stream;
    if (!id.exists()) return accounts_.opened();
    const StreamState& main = states_[id];
    return main.status == Status::running ? Time::max() : std::max(main.idle_since, accounts_.opened());
  }

  const Place& place(StreamId id) const { return states_[id].place; }
  Status status(StreamId id) const { return states_[id].status; }
  void set(StreamId id, Status status) { states_[id].status = status; }
  // The end of the op before; of a main stream, up to where it is accounted for.
  Time idle_since(StreamId id) const { return states_[id].idle_since; }
  bool ends_steps(StreamId id) const { return states_[id].ends_steps; }
  const UnmetWait& held_by(StreamId id) const { return unmet_[id]; }
  std::int64_t progress(StreamId id) const { return states_[id].progress; }
  std::size_t size() const { return states_.size(); }
  IdRange<StreamId> ids() const { return states_.ids(); }

  template <class Visitor>
  void show(StreamId id, Visitor& visitor) {
    StreamState& state = states_[id];
    visitor.count(state.progress);
    visitor.count(state.place.slot);
    visitor.count(state.slot_index);
    visitor.same(state.place.step);
    visitor.same(state.place.at);
    visitor.same(state.status);
    visitor.same(state.unchecked);
    visitor.time(state.idle_since);
    visitor.same(ended_[id]);
    if (state.status != Status::waiting) return;
    visitor.same(unmet_[id].wait);
    visitor.same(unmet_[id].stream);
    visitor.count(unmet_[id].needed);
  }

 private:
  // Thousands of them are touched in turn, so each is one cache line; so are the kernels and the transfer of a stream,
  // which lie with their own parts.
  struct alignas(64) StreamState {
    Place place;
    std::int64_t progress = 0;  // segments completed
    Time idle_since;
    std::int32_t slot_index = 0;
    SegmentId last{0};  // behind those of its body
    Status status = Status::advancing;
    bool ends_steps = false;  // a step is not over before it has finished it
    WaitId unchecked;         // the segment's waits before it are met; none: the segment has not been looked at
  };
  static_assert(sizeof(StreamState) == 64);

  // A stream of a rank; -1: its host.
  Cause cause(RankId rank, std::int32_t stream) const {
    return stream < 0 ? accounts_.host(rank) : Accounts::cause(ranks_[rank].stream(stream));
  }
  bool sleeps(StreamId id, IdRange<WaitId> waits);
  void go_on(StreamId id, bool launched_late);
  Cause account_wait(StreamId id, bool launched_late);
  bool enter_slot(StreamState& state);
  void go_to_slot(StreamState& state);

  const Clock& clock_;
  const Ranks& ranks_;
  Jobs& jobs_;
  Accounts& accounts_;
  Hosts& hosts_;
  OpRecords& records_;
  IdVector<StreamId, StreamState> states_;
  IdVector<StreamId, UnmetWait> unmet_;     // while it waits
  IdVector<StreamId, Cause> ended_;         // who ended its last wait
  IdVector<Cause, std::uint32_t> waiting_;  // for a stream or host: streams of its rank with Status::waiting, as bits
  std::vector<StreamId> work_;
  std::int64_t main_slots_ = 0;
};

}  // namespace rehearse::engine
