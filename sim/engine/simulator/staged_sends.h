// Sends from copies, where sends that wait for their receivers would make ranks wait in a circle
// (sim/program/link/send_slots.h), as execute/rank/gpu performs them: the op copies the message into a slot and is
// over; what is in the slots of a stream goes out one message after the other, in order, and frees its slot when it
// has been received. With all slots taken the op waits.
//
// Leaves out: what the copies take of the memory bandwidth of kernels that run meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "sim/engine/ids.h"
#include "sim/engine/matching.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/devices.h"
#include "sim/engine/simulator/streams.h"

namespace rehearse::engine {

class Transfers;

class StagedSends {
 public:
  StagedSends(Clock& clock, Streams& streams, Devices& devices, Matching& matching, Transfers& transfers);

  // The stream begins with the send at its head.
  void post(StreamId id);
  // Its message is in a slot.
  void end_copy(StreamId id);
  // The first message in the stream's slots has been received.
  void end(StreamId id, const Transfer& transfer);

  // Of a stream that has sent from copies.
  template <class Visitor>
  void show(StreamId id, Visitor& visitor) {
    const auto found = outboxes_.find(id);
    if (found == outboxes_.end()) return;
    visitor.same(found->second.stream_waits);
    for (Message& message : found->second.messages) {
      visitor.same(message.group);
      visitor.same(message.size);
      visitor.count(message.call);
    }
  }

 private:
  struct Message {
    ProcessGroupId group;
    std::int64_t call;
    std::int32_t size;
  };
  struct Outbox {
    std::deque<Message> messages;  // in slots; the first of them is on its way
    bool stream_waits = false;     // for a slot
  };

  void copy(StreamId id);
  void send_first(StreamId id);

  Clock& clock_;
  Streams& streams_;
  Devices& devices_;
  Matching& matching_;
  Transfers& transfers_;
  std::map<StreamId, Outbox> outboxes_;  // of streams that send from copies
};

}  // namespace rehearse::engine
