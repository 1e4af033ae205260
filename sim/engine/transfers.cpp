// Transfers: posted by lanes, matched (matching.h), started when everybody has posted, moved by the network. What they
// take from a device is held here: SMs from a rank's post to the end of its op (the legs of one op are one kernel: the
// most any of them takes), memory bandwidth while the bytes of a collective or leg move.
#include <algorithm>

#include "sim/account/blame.h"
#include "sim/base/check.h"
#include "sim/engine/simulator.h"

namespace rehearse::engine {

template <class Function>
void Simulator::for_participants(const Transfer& transfer, Function&& function) {
  if (transfer.first < 0) {
    function(transfer.sides[0]);
    function(transfer.sides[1]);
    return;
  }
  for (LaneId id = transfer.first; id >= 0;) {
    const LaneId next = lanes_[static_cast<std::size_t>(id)].next_participant;
    function(id);
    id = next;
  }
}

void Simulator::change_hold(std::int32_t index, HoldId hold, bool add) {
  if (hold == 0) return;
  Rank& rank = ranks_[static_cast<std::size_t>(index)];
  rank.state = add ? states_.add(rank.state, hold) : states_.remove(rank.state, hold);
  if (rank.changed) return;
  rank.changed = true;
  changed_ranks_.push_back(index);
}

void Simulator::post(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.status = Status::transferring;
  lane.posted = lane.started = lane.moving_from = now_;
  lane.sms_hold = 0;
  if (item_of(lane).kind == ItemKind::collective)
    post_collective(id);
  else if (buffered_)
    post_buffered(id);
  else
    post_messages(id);
}

void Simulator::post_collective(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  const std::int64_t call = lane.code->call(item.sequence, item.ordinal, lane.step, lane.slot);
  const std::int32_t number = matching_.find_or_open(matching_.group_of(lane.rank, item.sequence), call, item.size);
  Transfer& transfer = matching_.transfer(number);
  lane.legs_left = 1;
  lane.sms_hold = matching_.plan(transfer.plan).sms_hold;
  change_hold(lane.rank, lane.sms_hold, true);
  lane.next_participant = transfer.first;
  transfer.first = id;
  if (transfer.posted == 0 || transfer.last_post < now_)
    transfer.last_role = lane.code;
  else if (transfer.last_role != lane.code)
    transfer.last_role = nullptr;
  transfer.last_post = now_;
  if (++transfer.posted == transfer.expected) begin_transfer(number);
}

void Simulator::post_messages(LaneId id) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  lane.legs_left = item.leg_last - item.leg_first;
  posting_.clear();
  int most = 0;
  for (std::int32_t l = item.leg_first; l < item.leg_last; ++l) {
    const LegCode& leg = lane.code->legs[static_cast<std::size_t>(l)];
    const std::int64_t call = lane.code->call(leg.sequence, leg.ordinal, lane.step, lane.slot);
    const std::int32_t number = matching_.find_or_open(matching_.group_of(lane.rank, leg.sequence), call, leg.size);
    posting_.push_back(number);
    Transfer& transfer = matching_.transfer(number);
    transfer.sides[leg.send ? 0 : 1] = id;
    ++transfer.posted;
    const PlanCode& plan = matching_.plan(transfer.plan);
    if (plan.sms > most) {
      most = plan.sms;
      lane.sms_hold = plan.sms_hold;
    }
  }
  change_hold(lane.rank, lane.sms_hold, true);
  if (posting_.empty()) {
    change_hold(lane.rank, lane.sms_hold, false);
    finish_item(id);
    return;
  }
  // A message to oneself is in the list twice; the first look begins it.
  for (std::size_t i = 0; i < posting_.size(); ++i) {
    const std::int32_t number = posting_[i];
    const Transfer& transfer = matching_.transfer(number);
    const bool seen = std::find(posting_.begin(), posting_.begin() + static_cast<std::ptrdiff_t>(i), number) !=
                      posting_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!seen && transfer.posted == transfer.expected) begin_transfer(number);
  }
}

void Simulator::begin_transfer(std::int32_t number) {
  matching_.close(number);
  Transfer& transfer = matching_.transfer(number);
  transfer.started = now_;
  start_up(number);
}

// By which call it is, so that both its start-up and its bytes take the same.
Factor Simulator::factor_of_transfer(const Transfer& transfer) const {
  const GroupState& state = matching_.group(transfer.group);
  const program::ProcessGroup& group = *state.group;
  const Noise& noise = jobs_[static_cast<std::size_t>(state.job)].noise;
  if (!noise.transfers()) return kFactorOne;
  return noise.transfer(!state.channel(), group.ranks[0], state.channel() ? group.ranks[1] : group.group, group.channel,
                        transfer.call);
}

// The bytes move once the transfer's latency is over.
void Simulator::start_up(std::int32_t number) {
  const Transfer& transfer = matching_.transfer(number);
  std::int64_t startup = matching_.plan(transfer.plan).startup;
  if (noisy_transfers_) startup = times(startup, factor_of_transfer(transfer));
  if (startup > 0)
    queue_.push(now_ + startup, target(EventKind::bytes, number), 0);
  else
    move_bytes(number);
}

void Simulator::move_bytes(std::int32_t number) {
  Transfer& transfer = matching_.transfer(number);
  const PlanCode& plan = matching_.plan(transfer.plan);
  if (buffered_ && matching_.group(transfer.group).channel() && plan.activities.first == plan.activities.last) {
    take(number);
    return;
  }
  transfer.moving_from = now_;
  if (plan.core_time > 0) {
    begin_core_transfer(number);
    return;
  }
  if (plan.steps >= 0) {
    hold_bandwidth(transfer, true);
    end_steps(step_runs_.start(plan.steps, number, now_));
    return;
  }
  transfer.moving = plan.activities.last - plan.activities.first;
  if (transfer.moving == 0) {
    end_transfer(number);
    return;
  }
  hold_bandwidth(transfer, true);
  const Factor factor = noisy_transfers_ ? factor_of_transfer(transfer) : kFactorOne;
  for (std::int32_t a = plan.activities.first; a < plan.activities.last; ++a)
    network_.start(matching_.activity(a), number, now_, factor);
}

void Simulator::hold_bandwidth(const Transfer& transfer, bool add) {
  const HoldId hold = matching_.plan(transfer.plan).bandwidth_hold;
  if (hold == 0 || buffered_) return;
  for_participants(transfer, [&](LaneId id) { change_hold(lanes_[static_cast<std::size_t>(id)].rank, hold, add); });
}

void Simulator::end_activity(std::int32_t number) {
  Transfer& transfer = matching_.transfer(number);
  if (--transfer.moving > 0) return;
  hold_bandwidth(transfer, false);
  end_transfer(number);
}

// The steps of a collective have ended, or go on.
void Simulator::end_steps(std::int32_t number) {
  if (number == StepRuns::kGoesOn) return;
  hold_bandwidth(matching_.transfer(number), false);
  end_transfer(number);
}

void Simulator::end_transfer(std::int32_t number) {
  if (buffered_ && matching_.group(matching_.transfer(number).group).channel()) {
    arrive(number);
    return;
  }
  const Transfer transfer = matching_.transfer(number);
  PlanCode& plan = matching_.plan(transfer.plan);
  plan.busy += (now_ - transfer.started) * transfer.expected;
  if (in_reported_step()) ++plan.ended, plan.spent += now_ - transfer.started;
  matching_.release(number);
  for_participants(transfer, [&](LaneId id) { end_leg(id, transfer); });
}

// A collective, or one leg of the lane's messages, has ended.
void Simulator::end_leg(LaneId id, const Transfer& transfer) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.started = std::max(lane.started, transfer.started);
  lane.moving_from = std::max(lane.moving_from, transfer.moving_from);
  if (--lane.legs_left > 0) return;
  change_hold(lane.rank, lane.sms_hold, false);
  // With one of another role that came as late as one of ours, no one of ours made us wait longer.
  end_op(id, account::late(transfer.first >= 0 ? transfer.last_role == lane.code : item_of(lane).same_role));
}

// The lane's transfer is over. `late`: what its wait for the last participant is called.
void Simulator::end_op(LaneId id, result::Share late) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  if (recording(lane)) {
    result::OpRecord& record = records_.emplace_back(record_of(id, item.first, lane.posted, now_));
    record.waited_ps = lane.started - lane.posted;
    record.waited_for = late;
    record.moving_ps = now_ - std::max(lane.started, lane.moving_from);
  }
  tell(id, late, lane.started);
  tell(id, item.share, now_);
  finish_item(id);
}

}  // namespace rehearse::engine
