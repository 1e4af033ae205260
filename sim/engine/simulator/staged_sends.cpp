// See staged_sends.h.
#include "sim/engine/simulator/staged_sends.h"

#include <utility>

#include "sim/account/blame.h"
#include "sim/engine/simulator/transfers.h"

namespace rehearse::engine {

StagedSends::StagedSends(Clock& clock, Streams& streams, Devices& devices, Matching& matching, Transfers& transfers)
    : clock_(clock), streams_(streams), devices_(devices), matching_(matching), transfers_(transfers) {}

void StagedSends::post(StreamId id) {
  Outbox& outbox = outboxes_[id];
  outbox.stream_waits = outbox.messages.size() == static_cast<std::size_t>(streams_.place(id).segment().send_slots);
  if (!outbox.stream_waits) copy(id);
}

// A slot is free.
void StagedSends::copy(StreamId id) {
  streams_.set(id, Status::copying);
  transfers_.met(id, clock_.now(), clock_.now());
  clock_.at(clock_.now() + streams_.place(id).segment().copy, EventKind::staged_copy, id);
}

// The op is over, and the message goes out once those before it have.
void StagedSends::end_copy(StreamId id) {
  const Place& place = streams_.place(id);
  const Segment& segment = place.segment();
  const LegCode& leg = place.code->legs[segment.legs.first];
  Outbox& outbox = outboxes_[id];
  outbox.messages.push_back({matching_.group_of(place.rank, leg.sequence),
                             place.code->call(leg.sequence, leg.ordinal, place.step, place.slot), leg.size});
  const bool first = outbox.messages.size() == 1;
  transfers_.end_op(id, account::late(segment.same_role));
  if (first) send_first(id);
}

void StagedSends::send_first(StreamId id) {
  const Message& message = outboxes_[id].messages.front();
  const TransferId number = matching_.find_or_open(message.group, message.call, message.size);
  Transfer& transfer = matching_.transfer(number);
  transfer.sides[0] = id;
  transfer.from_copy = true;
  devices_.take(streams_.place(id).rank, matching_.plan(transfer.plan).sms_hold);
  if (++transfer.posted == transfer.expected) transfers_.begin(number);
}

void StagedSends::end(StreamId id, const Transfer& transfer) {
  devices_.give_back(streams_.place(id).rank, matching_.plan(transfer.plan).sms_hold);
  Outbox& outbox = outboxes_[id];
  outbox.messages.pop_front();
  if (!outbox.messages.empty()) send_first(id);
  if (std::exchange(outbox.stream_waits, false)) copy(id);
}

}  // namespace rehearse::engine
