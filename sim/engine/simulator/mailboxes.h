// Buffered messages, as threads of one host or processes over sockets have them: a sender copies its message out and
// goes on; within a host the message is there at once; over a network its bytes move once the receiver asks for them
// (as Gloo's do), one message after the other between two ranks. The receiver stops for it and copies it in. The legs
// of an op are done one after the other by the stream's own thread, sends first (execute/transport/communicator.h), so
// no two ranks can wait for one another's sends.
//
// A transfer is opened by whichever side comes first and leaves the list of its channel when both have come.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "sim/base/units.h"
#include "sim/engine/ids.h"
#include "sim/engine/matching.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/streams.h"

namespace rehearse::engine {

class SharedCores;
class Transfers;

class Mailboxes {
 public:
  Mailboxes(Clock& clock, Streams& streams, Matching& matching, Transfers& transfers, SharedCores& cores);

  // The stream begins with the messages of the segment at its head.
  void post(StreamId id);
  // The message is there: its bytes have crossed the network.
  void arrive(TransferId id);
  // Its receiver, which stopped for it, goes on with it.
  void take(TransferId id);
  // The copy of the message that the stream has in hand is over: it was sent, or it has been taken.
  void end_copy(StreamId id);

 private:
  enum class Stage : unsigned char { opened, sent /* over a network */, arrived };
  struct Message {
    Stage stage = Stage::opened;
    bool awaited = false;  // its receiver has stopped for it
    Time crossing_since;   // the network
  };
  struct Hand {
    std::int32_t visits_left = 0;  // to the legs of the op: to all for its sends, then to all for its receives
    TransferId message;            // the leg being done
  };

  void next_leg(StreamId id);
  TransferId open_leg(StreamId id, const LegCode& leg);
  void send(StreamId id, const LegCode& leg);
  void receive(StreamId id, const LegCode& leg);
  void begin_copy(StreamId id, Time alone);
  void deliver(TransferId id);
  void queue_up(TransferId id);
  void cross(TransferId id);
  std::deque<TransferId>& connection_of(TransferId id);

  Clock& clock_;
  Streams& streams_;
  Matching& matching_;
  Transfers& transfers_;
  SharedCores& cores_;
  IdVector<StreamId, Hand> hands_;
  IdVector<TransferId, Message> messages_;
  // Messages on their way over the network, by sender and receiver, the first of them moving.
  std::map<std::pair<int, int>, std::deque<TransferId>> connections_;
};

}  // namespace rehearse::engine
