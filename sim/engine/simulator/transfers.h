// Transfers: posted by streams, matched (matching.h), started when everybody has posted, moved by the network, by the
// steps of a collective, or by cores. What they take from a device is taken here: SMs from a rank's post to the end of
// its op (the legs of one op are one kernel: the most any of them takes), memory bandwidth while the bytes of a
// collective or leg move. Messages that are buffered go their own way (mailboxes.h), and sends from copies part of it
// (staged_sends.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/ids.h"
#include "sim/engine/interference.h"
#include "sim/engine/matching.h"
#include "sim/engine/network.h"
#include "sim/engine/noise.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/devices.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/op_records.h"
#include "sim/engine/simulator/streams.h"
#include "sim/engine/step_runs.h"

namespace rehearse::engine {

class Mailboxes;
class SharedCores;
class StagedSends;

class Transfers {
 public:
  Transfers(Clock& clock, const Jobs& jobs, Streams& streams, Devices& devices, Matching& matching, Network& network,
            StepRuns& step_runs, SharedCores& cores, Mailboxes& mailboxes, StagedSends& staged_sends,
            OpRecords& records, bool buffered);

  // The stream posts the segment at its head, a collective or messages.
  void post(StreamId id);
  // The transfer's start-up is over.
  void move_bytes(TransferId id);
  // An activity of the network with this owner has ended; a message of a collective's steps has arrived.
  void end_activity(std::int32_t owner);
  void arrive(std::uint32_t message);
  // All its bytes are there.
  void end(TransferId id);

  // For mailboxes and sends from copies. Everybody has posted; starts the start-up; how long something of the transfer
  // takes, noise and all; the stream's op found the other side ready at `since`, and bytes moved from `moving_from` on;
  // its op is over, having waited for `late`.
  void begin(TransferId id);
  void start_up(TransferId id);
  Time duration(const Transfer& transfer, Time alone) const { return noisy_ ? times(alone, factor(transfer)) : alone; }
  void met(StreamId id, Time since, Time moving_from) {
    Post& post = posts_[id];
    post.started = std::max(post.started, since);
    post.moving_from = std::max(post.moving_from, moving_from);
  }
  void end_op(StreamId id, result::Share late);

  // Of a stream that has posted.
  template <class Visitor>
  void show(StreamId id, Visitor& visitor) {
    Post& post = posts_[id];
    visitor.time(post.posted);
    visitor.time(post.started);
    visitor.time(post.moving_from);
    visitor.same(post.legs_left);
    visitor.same(post.sms_hold);
  }

  // The next of those that posted a collective, from Transfer::first.
  StreamId next_participant(StreamId id) const { return posts_[id].next; }

 private:
  // Of a stream: what it has posted.
  struct Post {
    Time posted, started, moving_from;
    StreamId next;  // participant of its collective
    std::int32_t legs_left = 0;
    HoldId sms_hold = kHoldsNothing;
    RankId rank;  // as in its Place: what goes through all participants looks at these only
  };
  static_assert(sizeof(Post) == 40);

  void post_collective(StreamId id);
  void post_messages(StreamId id);
  void hold_bandwidth(const Transfer& transfer, bool take);
  void end_steps(std::int32_t owner);
  void end_leg(StreamId id, const Transfer& transfer);
  Factor factor(const Transfer& transfer) const;
  Time delay(const Transfer& transfer) const;
  template <class Function>
  void for_participants(const Transfer& transfer, Function&& function) const;

  Clock& clock_;
  const Jobs& jobs_;
  Streams& streams_;
  Devices& devices_;
  Matching& matching_;
  Network& network_;
  StepRuns& step_runs_;
  SharedCores& cores_;
  Mailboxes& mailboxes_;
  StagedSends& staged_sends_;
  OpRecords& records_;
  const bool buffered_;  // messages
  const bool noisy_;
  IdVector<StreamId, Post> posts_;
  std::vector<TransferId> posting_;  // of the messages being posted
};

}  // namespace rehearse::engine
