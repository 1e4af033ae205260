// See mailboxes.h.
#include "sim/engine/simulator/mailboxes.h"

#include "sim/account/blame.h"
#include "sim/engine/simulator/shared_cores.h"
#include "sim/engine/simulator/transfers.h"

namespace rehearse::engine {

Mailboxes::Mailboxes(Clock& clock, Streams& streams, Matching& matching, Transfers& transfers, SharedCores& cores)
    : clock_(clock),
      streams_(streams),
      matching_(matching),
      transfers_(transfers),
      cores_(cores),
      hands_(streams.size()) {}

void Mailboxes::post(StreamId id) {
  hands_[id].visits_left = 2 * streams_.place(id).segment().legs.size();
  next_leg(id);
}

// Goes on with the stream's next leg; the op is done after the last.
void Mailboxes::next_leg(StreamId id) {
  streams_.set(id, Status::transferring);
  const Place& place = streams_.place(id);
  const Segment& segment = place.segment();
  const std::int32_t legs = segment.legs.size();
  Hand& hand = hands_[id];
  while (hand.visits_left > 0) {
    const std::int32_t index = (2 * legs - hand.visits_left) % legs;
    const bool sending = hand.visits_left > legs;
    --hand.visits_left;
    const LegCode& leg = place.code->legs[segment.legs.first + index];
    if (leg.send != sending) continue;
    if (sending)
      send(id, leg);
    else
      receive(id, leg);
    return;
  }
  transfers_.end_op(id, account::late(segment.same_role));
}

// The transfer of a leg, with this stream as one of its sides.
TransferId Mailboxes::open_leg(StreamId id, const LegCode& leg) {
  const Place& place = streams_.place(id);
  const std::int64_t call = place.code->call(leg.sequence, leg.ordinal, place.step, place.slot);
  const TransferId number = matching_.find_or_open(matching_.group_of(place.rank, leg.sequence), call, leg.size);
  hands_[id].message = number;
  Transfer& transfer = matching_.transfer(number);
  if (transfer.posted == 0) {
    messages_.reach(number);
    messages_[number] = Message();
  }
  transfer.sides[leg.send ? 0 : 1] = id;
  if (++transfer.posted == transfer.expected) matching_.close(number);
  return number;
}

void Mailboxes::send(StreamId id, const LegCode& leg) {
  const Transfer& transfer = matching_.transfer(open_leg(id, leg));
  begin_copy(id, transfers_.duration(transfer, matching_.plan(transfer.plan).copy_out));
}

void Mailboxes::receive(StreamId id, const LegCode& leg) {
  const TransferId number = open_leg(id, leg);
  Message& message = messages_[number];
  message.awaited = true;
  if (message.stage == Stage::arrived)
    take(number);
  else if (message.stage == Stage::sent)
    queue_up(number);
}

// The stream's thread works for `alone`, more where cores are short.
void Mailboxes::begin_copy(StreamId id, Time alone) {
  streams_.set(id, Status::copying);
  if (cores_.shared())
    cores_.begin_copy(id, alone);
  else
    clock_.at(clock_.now() + alone, EventKind::copy, id);
}

void Mailboxes::end_copy(StreamId id) {
  const TransferId number = hands_[id].message;
  const Transfer& transfer = matching_.transfer(number);
  PlanCode& plan = matching_.plan(transfer.plan);
  const bool taken = messages_[number].stage == Stage::arrived && transfer.sides[1] == id;
  plan.busy_ps += (taken ? plan.copy_in : plan.copy_out).ps();
  if (taken)
    matching_.release(number);
  else
    deliver(number);
  next_leg(id);
}

void Mailboxes::deliver(TransferId id) {
  Transfer& transfer = matching_.transfer(id);
  transfer.started = clock_.now();
  if (matching_.plan(transfer.plan).activities.empty()) {
    arrive(id);
    return;
  }
  messages_[id].stage = Stage::sent;
  if (messages_[id].awaited) queue_up(id);
}

// Both sides of a message over the network have come: a receiver's word that it is ready sets the bytes in motion.
void Mailboxes::queue_up(TransferId id) {
  matching_.transfer(id).started = clock_.now();
  std::deque<TransferId>& line = connection_of(id);
  line.push_back(id);
  if (line.size() == 1) cross(id);
}

// Over the network: one message after the other between the same two ranks, as on one connection.
void Mailboxes::cross(TransferId id) {
  messages_[id].crossing_since = clock_.now();
  transfers_.start_up(id);
}

std::deque<TransferId>& Mailboxes::connection_of(TransferId id) {
  const std::vector<int>& ends = matching_.group(matching_.transfer(id).group).group->ranks;
  return connections_[{ends[0], ends[1]}];
}

// A receiver that stopped for it has to wake up, which the time over a network includes.
void Mailboxes::arrive(TransferId id) {
  Message& message = messages_[id];
  message.stage = Stage::arrived;
  PlanCode& plan = matching_.plan(matching_.transfer(id).plan);
  const bool moved = !plan.activities.empty();
  if (moved) {
    plan.busy_ps += (clock_.now() - message.crossing_since).ps();
    std::deque<TransferId>& line = connection_of(id);
    line.pop_front();
    if (!line.empty()) cross(line.front());
  }
  if (!message.awaited) return;
  if (!moved && plan.startup > Time())
    clock_.at(clock_.now() + plan.startup, EventKind::bytes, id);
  else
    take(id);
}

void Mailboxes::take(TransferId id) {
  const Transfer& transfer = matching_.transfer(id);
  const StreamId receiver = transfer.sides[1];
  const PlanCode& plan = matching_.plan(transfer.plan);
  // Over a network its bytes moved while it was waited for; else they are the copy.
  const bool crossed = !plan.activities.empty();
  transfers_.met(receiver, transfer.started, crossed ? transfer.moving_from : clock_.now());
  begin_copy(receiver, transfers_.duration(transfer, plan.copy_in));
}

}  // namespace rehearse::engine
