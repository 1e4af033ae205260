// Untimed token execution of a step of a program: every stream of every representative (matches.h) is a queue in
// program order; a kernel is done as soon as it is first in its queue and its waits are met; a transfer is then posted,
// and done once everyone it meets has posted too (rendezvous: no sender runs ahead). The host issues nothing beyond a
// host sync that is not done. What can be reached does not depend on the order of moves, so one sweep after another
// until nothing moves is exact. Left out: the bounded launch queue, and eager sends (a program that needs them is
// reported).
//
// Of ranks whose memory is an arena the waits for its reuse are among an op's waits, and sends from copies are done as
// soon as one of the stream's slots is free: a slot holds a message until it is received.
//
// One step is enough: it begins with all of the step before done, and ends with nothing in flight, as every other does.
//
// If something is left, every stuck rank's first unfinished op in program order is a transfer that others do not come
// to, or a send for which no slot is free: its waits are for earlier ops, which are done. So each stuck rank waits for
// another stuck rank there, and the chain ends in a circle.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/program/link/calls.h"
#include "sim/program/link/matches.h"
#include "sim/program/link/places.h"
#include "sim/program/link/reuse_order.h"
#include "sim/program/link/waits.h"

namespace rehearse::program {

// Ops of a role by position in program order.
struct StepPosition {
  std::int32_t slot = 0, op = 0;
  auto operator<=>(const StepPosition&) const = default;
};

// The `call`-th of a side of a match.
struct Post {
  std::int32_t match, side, call;
};

class RoleTokens {
 public:
  // `arena`: nullptr: no waits for the reuse of memory.
  RoleTokens(const Role& role, const RoleCalls& calls, const std::vector<SequenceMatch>& matches,
             const ArenaPlaces* arena);

  const Role& role() const { return role_; }
  const Op& op(StepPosition p) const {
    return role_.bodies[static_cast<std::size_t>(body(p))].ops[static_cast<std::size_t>(p.op)];
  }
  // What a run asks of an op.
  struct OpKind {
    bool transfer;  // that other roles must come to
    bool sends_alone, sync;
    bool free;  // waits for nothing, nor for others
  };
  OpKind kind(StepPosition p) const {
    return kind_of_op_[first_op_[static_cast<std::size_t>(body(p))] + static_cast<std::size_t>(p.op)];
  }
  // The op at the head of a stream; none when the stream has drained.
  std::optional<StepPosition> head(StreamId stream) const;
  bool held_by_syncs(StepPosition position) const {
    return syncs_done_ < syncs_.size() && position > syncs_[syncs_done_];
  }
  bool held_by_events(StepPosition position) const;
  // The op whose use of memory must be over first, if it is not.
  std::optional<StepPosition> held_by_memory(StepPosition position) const;

  // Kernels and host syncs at a stream's head whose waits are met are done, up to the first op that is held, or a
  // transfer that may start. Whether there is one, and whether anything moved.
  struct Advance {
    bool transfer, moved;
  };
  Advance go_on(StreamId stream);
  // Streams that may go on further than when they were last looked at: at first all, then those whose obstacle has
  // moved. Takes the first of them; -1: none.
  void look_at_all() { to_look_at_ = all_streams(); }
  StreamId take_to_look_at();
  // The op at its head is done.
  void finish(StreamId stream);

  // Of the op there the calls that others' match; none of a kernel.
  void posts(StepPosition p, std::vector<Post>& all) const;
  std::optional<StepPosition> first_unfinished() const;

 private:
  BodyId body(StepPosition p) const { return role_.slots[static_cast<std::size_t>(p.slot)].body; }
  // An op on a stream, in a body.
  struct Queued {
    std::int32_t op;
    std::int32_t next_held;              // in the queue: the first from here that is not free
    std::int32_t first_wait, last_wait;  // in waited_for_
    OpKind kind;
  };
  // What an op waits for, of events and of memory.
  struct WaitedFor {
    enum class In : unsigned char { same_slot, latest, row } in;
    StreamId stream;
    BodyId body;  // latest
    std::int32_t op;
    std::int32_t row;  // of ReuseOrder
  };
  struct Cursor {
    std::int32_t slot = 0, index = 0, op = 0;  // of its head: place in the queue, and the op
    bool ready = false;                        // nothing holds it but, if a transfer, others
    // What it was last seen to be held by; stream -1: nothing.
    StreamId held_stream = -1;
    std::int32_t held_slot = 0, held_op = 0;
  };

  void reach_head(StreamId stream);
  bool has_head(const Cursor& c) const { return c.slot < static_cast<std::int32_t>(role_.slots.size()); }
  void queue_ops();
  void add_waits(BodyId body, std::int32_t op);
  // Whether the op on the stream that runs there is not done; `slot` as StepOrder::latest or kNoSlot.
  bool pending(StreamId stream, std::int32_t slot, std::int32_t op) const {
    const Cursor& c = cursors_[static_cast<std::size_t>(stream)];
    return slot >= 0 && (c.slot != slot ? c.slot < slot : c.op <= op);  // else of the step before, or of none
  }
  bool body_pending(BodyId body, std::int32_t slot, std::int32_t op) const {
    return pending(stream_of_op_[first_op_[static_cast<std::size_t>(body)] + static_cast<std::size_t>(op)], slot, op);
  }
  bool held(StreamId stream, const Queued& head);
  std::uint32_t all_streams() const { return (std::uint32_t{1} << cursors_.size()) - 1; }
  // Its head is another, or a host sync is done: those that were held by it are looked at again.
  void release(std::uint32_t& held) { to_look_at_ |= std::exchange(held, 0); }
  // A body's ops on a stream.
  std::span<const Queued> queue(BodyId body, StreamId stream) const {
    const std::size_t at = static_cast<std::size_t>(body) * role_.streams.size() + static_cast<std::size_t>(stream);
    return {queued_.data() + first_queued_[at], queued_.data() + first_queued_[at + 1]};
  }

  const Role& role_;
  const RoleCalls& calls_;
  const std::vector<SequenceMatch>& matches_;
  const ArenaPlaces* arena_;
  RoleWaits waits_;
  ReuseOrder order_;
  std::vector<Queued> queued_;  // by body and stream
  std::vector<WaitedFor> waited_for_;
  std::vector<std::size_t> first_queued_;  // by body and stream; one more at the end
  std::vector<StreamId> stream_of_op_;     // by body and op
  std::vector<OpKind> kind_of_op_;         // by body and op
  std::vector<std::size_t> first_op_;      // by body, in these two
  std::vector<StepPosition> syncs_;        // host syncs of the step
  std::size_t syncs_done_ = 0;
  std::vector<Cursor> cursors_;  // by stream
  // Bits of streams: to be looked at; held by each stream; behind a host sync.
  std::uint32_t to_look_at_ = 0, behind_sync_ = 0;
  std::vector<std::uint32_t> held_by_;
};

class TokenRun {
 public:
  struct Obstacle {
    std::int32_t match, side;  // who does not come
    std::int32_t call;         // to which of its calls
  };

  // All by role, and to outlive the run. `places`: empty: no rank's memory is an arena. `send_slots`: as Arenas has it.
  TokenRun(const Program& program, const std::vector<RoleCalls>& calls, const RoleMatches& matches,
           const std::vector<const ArenaPlaces*>& places, int send_slots);

  // Whether everything drains.
  bool run();

  // Of a stuck role, by its first unfinished op.
  std::optional<Obstacle> obstacle(RoleId role, StepPosition position) const;
  std::vector<RoleTokens>& roles() { return roles_; }

 private:
  bool sweep(std::size_t role);
  // Whether anything moved; whether it may go on further at once.
  struct Advance {
    bool moved, further;
  };
  Advance advance(std::size_t role, StreamId stream);
  void post(const std::vector<Post>& posts);
  // The messages in a stream's slots go out one after the other.
  bool send(std::size_t role, StreamId stream);
  // The first side that has not come to one of the calls.
  std::optional<Obstacle> missing(const std::vector<Post>& posts) const;
  bool absent(const Obstacle& who) const;
  bool from_copy(RoleTokens::OpKind kind) const;

  const RoleMatches& matches_;
  const int send_slots_;
  std::vector<RoleTokens> roles_;
  std::vector<std::vector<std::vector<bool>>> posted_;  // by match, side and call
  // By role and stream: the messages in its slots; the first of them is on its way.
  std::vector<std::vector<std::deque<std::vector<Post>>>> slots_;
  // By role and stream: who was last seen to be missing at the transfer at its head, or at the message on its way.
  struct Missing {
    std::optional<Obstacle> at_head, on_its_way;
  };
  std::vector<std::vector<Missing>> missing_;
  std::vector<Post> posts_;  // of the op being looked at
  bool posted_new_ = false;
};

}  // namespace rehearse::program
