// Buffered messages, as threads of one host or processes over sockets have them: a sender copies its message out and
// goes on; within a host the message is there at once; over a network its bytes move once the receiver asks for them
// (as Gloo's do), one message after the other between two ranks. The receiver stops for it and copies it in. The legs
// of an op are done one after the other by the stream's own thread, sends first (execute/transport/communicator.h), so
// no two ranks can wait for one another's sends.
//
// A transfer is opened by whichever side comes first and leaves the list of its channel when both have come.
#include "sim/account/blame.h"
#include "sim/base/check.h"
#include "sim/engine/simulator.h"

namespace rehearse::engine {

void Simulator::post_buffered(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  lane.legs_left = 2 * (item.leg_last - item.leg_first);  // all legs twice: for its sends, then for its receives
  next_leg(id);
}

// Goes on with the lane's next leg; the op is done after the last.
void Simulator::next_leg(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.status = Status::transferring;
  const Item& item = item_of(lane);
  const std::int32_t legs = item.leg_last - item.leg_first;
  while (lane.legs_left > 0) {
    const std::int32_t index = (2 * legs - lane.legs_left) % legs;
    const bool sending = lane.legs_left > legs;
    --lane.legs_left;
    const LegCode& leg = lane.code->legs[static_cast<std::size_t>(item.leg_first + index)];
    if (leg.send != sending) continue;
    if (sending)
      send_leg(id, leg);
    else
      receive_leg(id, leg);
    return;
  }
  end_op(id, account::late(item.same_role));
}

// The transfer of a leg, with this lane as one of its sides.
std::int32_t Simulator::open_leg(LaneId id, const LegCode& leg) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const std::int64_t call = lane.code->call(leg.sequence, leg.ordinal, lane.step, lane.slot);
  lane.message = matching_.find_or_open(matching_.group_of(lane.rank, leg.sequence), call, leg.size);
  Transfer& transfer = matching_.transfer(lane.message);
  transfer.sides[leg.send ? 0 : 1] = id;
  if (++transfer.posted == transfer.expected) matching_.close(lane.message);
  return lane.message;
}

void Simulator::send_leg(LaneId id, const LegCode& leg) {
  const Transfer& transfer = matching_.transfer(open_leg(id, leg));
  const std::int64_t ps = matching_.plan(transfer.plan).copy_out;
  begin_copy(id, noisy_transfers_ ? times(ps, factor_of_transfer(transfer)) : ps);
}

void Simulator::receive_leg(LaneId id, const LegCode& leg) {
  const std::int32_t number = open_leg(id, leg);
  Transfer& transfer = matching_.transfer(number);
  transfer.awaited = true;
  if (transfer.arrived)
    take(number);
  else if (transfer.sent)
    queue_up(number);
}

// The lane's thread works for `ps`, more where cores are short.
void Simulator::begin_copy(LaneId id, std::int64_t ps) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.status = Status::copying;
  if (sharing_.cores > 0)
    begin_shared_copy(id, ps);
  else
    queue_.push(now_ + ps, target(EventKind::kernels, id), ++lane.version);
}

// Of the message in hand: it was sent, or it has been taken.
void Simulator::end_copy(LaneId id) {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  if (sharing_.cores > 0) touch_node(lane.rank);
  const std::int32_t number = lane.message;
  const Transfer& transfer = matching_.transfer(number);
  PlanCode& plan = matching_.plan(transfer.plan);
  const bool taken = transfer.arrived && transfer.sides[1] == id;
  plan.busy += taken ? plan.copy_in : plan.copy_out;
  if (taken)
    matching_.release(number);
  else
    deliver(number);
  next_leg(id);
}

void Simulator::deliver(std::int32_t number) {
  Transfer& transfer = matching_.transfer(number);
  transfer.started = now_;
  const PlanCode& plan = matching_.plan(transfer.plan);
  transfer.sent = plan.activities.first != plan.activities.last;
  if (!transfer.sent)
    arrive(number);
  else if (transfer.awaited)
    queue_up(number);
}

// Both sides of a message over the network have come: a receiver's word that it is ready sets the bytes in motion.
void Simulator::queue_up(std::int32_t number) {
  Transfer& transfer = matching_.transfer(number);
  transfer.started = now_;
  std::deque<std::int32_t>& line = connections_[connection_of(transfer)];
  line.push_back(number);
  if (line.size() == 1) cross(number);
}

// Over the network: one message after the other between the same two ranks, as on one connection.
void Simulator::cross(std::int32_t number) {
  matching_.transfer(number).anchor = now_;
  start_up(number);
}

std::pair<int, int> Simulator::connection_of(const Transfer& transfer) const {
  const std::vector<int>& ends = matching_.group(transfer.group).group->ranks;
  return {ends[0], ends[1]};
}

// The message is there. A receiver that stopped for it has to wake up, which the time over a network includes.
void Simulator::arrive(std::int32_t number) {
  Transfer& transfer = matching_.transfer(number);
  transfer.arrived = true;
  PlanCode& plan = matching_.plan(transfer.plan);
  const bool moved = plan.activities.first != plan.activities.last;
  if (moved) {
    plan.busy += now_ - transfer.anchor;
    std::deque<std::int32_t>& line = connections_[connection_of(transfer)];
    line.pop_front();
    if (!line.empty()) cross(line.front());
  }
  if (!transfer.awaited) return;
  if (!moved && plan.startup > 0)
    queue_.push(now_ + plan.startup, target(EventKind::bytes, number), 0);
  else
    take(number);
}

// Its receiver goes on with it.
void Simulator::take(std::int32_t number) {
  const Transfer& transfer = matching_.transfer(number);
  Lane& lane = lanes_[static_cast<std::size_t>(transfer.sides[1])];
  lane.started = std::max(lane.started, transfer.started);
  // Over a network its bytes moved while it was waited for; else they are the copy.
  lane.moving_from = std::max(lane.moving_from, transfer.sent ? transfer.moving_from : now_);
  const std::int64_t ps = matching_.plan(transfer.plan).copy_in;
  begin_copy(transfer.sides[1], noisy_transfers_ ? times(ps, factor_of_transfer(transfer)) : ps);
}

}  // namespace rehearse::engine
