// See transfers.h.
#include "sim/engine/simulator/transfers.h"

#include <algorithm>

#include "sim/account/blame.h"
#include "sim/base/check.h"
#include "sim/engine/simulator/mailboxes.h"
#include "sim/engine/simulator/shared_cores.h"
#include "sim/engine/simulator/staged_sends.h"

namespace rehearse::engine {

Transfers::Transfers(Clock& clock, const Jobs& jobs, Streams& streams, Devices& devices, Matching& matching,
                     Network& network, StepRuns& step_runs, SharedCores& cores, Mailboxes& mailboxes,
                     StagedSends& staged_sends, OpRecords& records, bool buffered)
    : clock_(clock),
      jobs_(jobs),
      streams_(streams),
      devices_(devices),
      matching_(matching),
      network_(network),
      step_runs_(step_runs),
      cores_(cores),
      mailboxes_(mailboxes),
      staged_sends_(staged_sends),
      records_(records),
      buffered_(buffered),
      noisy_(jobs.noisy_transfers()),
      posts_(streams.size()) {
  for (const StreamId id : streams.ids()) posts_[id].rank = streams.place(id).rank;
}

template <class Function>
void Transfers::for_participants(const Transfer& transfer, Function&& function) const {
  if (!transfer.first.exists()) {
    function(transfer.sides[0]);
    function(transfer.sides[1]);
    return;
  }
  for (StreamId id = transfer.first; id.exists();) {
    const StreamId next = posts_[id].next;
    function(id);
    id = next;
  }
}

void Transfers::post(StreamId id) {
  streams_.set(id, Status::transferring);
  Post& post = posts_[id];
  post.posted = post.started = post.moving_from = clock_.now();
  post.sms_hold = kHoldsNothing;
  const Segment& segment = streams_.place(id).segment();
  if (segment.kind == SegmentKind::collective)
    post_collective(id);
  else if (buffered_)
    mailboxes_.post(id);
  else if (segment.send_slots > 0)
    staged_sends_.post(id);
  else
    post_messages(id);
}

void Transfers::post_collective(StreamId id) {
  Post& post = posts_[id];
  const Place& place = streams_.place(id);
  const Segment& segment = place.segment();
  const std::int64_t call = place.code->call(segment.sequence, segment.ordinal, place.step, place.slot);
  const TransferId number =
      matching_.find_or_open(matching_.group_of(place.rank, segment.sequence), call, segment.size);
  Transfer& transfer = matching_.transfer(number);
  post.legs_left = 1;
  post.sms_hold = matching_.plan(transfer.plan).sms_hold;
  devices_.take(place.rank, post.sms_hold);
  post.next = transfer.first;
  transfer.first = id;
  if (transfer.posted == 0 || transfer.last_post < clock_.now())
    transfer.last_role = place.code;
  else if (transfer.last_role == nullptr || !same_stage(*transfer.last_role, *place.code))
    transfer.last_role = nullptr;
  transfer.last_post = clock_.now();
  if (++transfer.posted == transfer.expected) begin(number);
}

void Transfers::post_messages(StreamId id) {
  Post& post = posts_[id];
  const Place& place = streams_.place(id);
  const Segment& segment = place.segment();
  if (segment.legs.empty()) {
    streams_.finish(id);
    return;
  }
  post.legs_left = segment.legs.size();
  posting_.clear();
  int most = 0;
  for (const LegId l : segment.legs) {
    const LegCode& leg = place.code->legs[l];
    const std::int64_t call = place.code->call(leg.sequence, leg.ordinal, place.step, place.slot);
    const TransferId number = matching_.find_or_open(matching_.group_of(place.rank, leg.sequence), call, leg.size);
    posting_.push_back(number);
    Transfer& transfer = matching_.transfer(number);
    transfer.sides[leg.send ? 0 : 1] = id;
    ++transfer.posted;
    const PlanCode& plan = matching_.plan(transfer.plan);
    if (plan.sms > most) {
      most = plan.sms;
      post.sms_hold = plan.sms_hold;
    }
  }
  devices_.take(place.rank, post.sms_hold);
  // A message to oneself is in the list twice; the first look begins it.
  for (auto number = posting_.begin(); number != posting_.end(); ++number) {
    const Transfer& transfer = matching_.transfer(*number);
    const bool seen = std::find(posting_.begin(), number, *number) != number;
    if (!seen && transfer.posted == transfer.expected) begin(*number);
  }
}

void Transfers::begin(TransferId id) {
  matching_.close(id);
  matching_.transfer(id).started = clock_.now();
  start_up(id);
}

// By which call it is, so that both its start-up and its bytes take the same.
Factor Transfers::factor(const Transfer& transfer) const {
  const GroupState& state = matching_.group(transfer.group);
  const program::ProcessGroup& group = *state.group;
  const Noise& noise = jobs_.noise(state.job);
  const MachineJitter& jitter = jobs_.jitter(state.job);
  const bool group_call = !state.channel();
  const std::int32_t a = group.ranks[0], b = group_call ? group.group : group.ranks[1];
  Factor factor = kFactorOne;
  if (noise.transfers()) factor = noise.transfer(group_call, a, b, group.channel, transfer.call);
  return jitter.any() ? times(factor, jitter.transfer(group_call, a, b, group.channel, transfer.call)) : factor;
}

// What the machine's scatter adds to the start-up.
Time Transfers::delay(const Transfer& transfer) const {
  const GroupState& state = matching_.group(transfer.group);
  const program::ProcessGroup& group = *state.group;
  const MachineJitter& jitter = jobs_.jitter(state.job);
  if (!jitter.any()) return Time();
  const bool group_call = !state.channel();
  return jitter.transfer_delay(group_call, group.ranks[0], group_call ? group.group : group.ranks[1], group.channel,
                               transfer.call);
}

// The bytes move once the transfer's latency is over.
void Transfers::start_up(TransferId id) {
  const Transfer& transfer = matching_.transfer(id);
  Time startup = duration(transfer, matching_.plan(transfer.plan).startup);
  if (noisy_) startup = startup + delay(transfer);
  if (startup > Time())
    clock_.at(clock_.now() + startup, EventKind::bytes, id);
  else
    move_bytes(id);
}

void Transfers::move_bytes(TransferId id) {
  Transfer& transfer = matching_.transfer(id);
  const PlanCode& plan = matching_.plan(transfer.plan);
  if (buffered_ && matching_.group(transfer.group).channel() && plan.activities.empty()) {
    mailboxes_.take(id);
    return;
  }
  transfer.moving_from = clock_.now();
  if (plan.core_time > Time()) {
    const GroupState& state = matching_.group(transfer.group);
    const RankId rank = jobs_.ranks(state.job).first + state.group->ranks.front();  // ranks of hosts are not folded
    cores_.begin_transfer(id, rank, duration(transfer, plan.core_time), plan.threads);
    return;
  }
  if (plan.steps.exists()) {
    hold_bandwidth(transfer, true);
    end_steps(step_runs_.start(plan.steps, id.value(), clock_.now()));
    return;
  }
  transfer.moving = plan.activities.size();
  if (transfer.moving == 0) {
    end(id);
    return;
  }
  hold_bandwidth(transfer, true);
  const Factor slower = noisy_ ? factor(transfer) : kFactorOne;
  for (const ActivityId activity : plan.activities) network_.start(activity, id.value(), clock_.now(), slower);
}

void Transfers::hold_bandwidth(const Transfer& transfer, bool take) {
  const HoldId hold = matching_.plan(transfer.plan).bandwidth_hold;
  if (hold == kHoldsNothing || buffered_) return;
  if (take)
    for_participants(transfer, [&](StreamId id) { devices_.take(posts_[id].rank, hold); });
  else
    for_participants(transfer, [&](StreamId id) { devices_.give_back(posts_[id].rank, hold); });
}

void Transfers::end_activity(std::int32_t owner) {
  if (StepRuns::is_message(owner)) {
    end_steps(step_runs_.sent(owner, clock_.now()));
    return;
  }
  const TransferId id(owner);
  Transfer& transfer = matching_.transfer(id);
  if (--transfer.moving > 0) return;
  hold_bandwidth(transfer, false);
  end(id);
}

void Transfers::arrive(std::uint32_t message) {
  end_steps(step_runs_.arrived(message, clock_.now()));
}

// The steps of a collective have ended, or go on.
void Transfers::end_steps(std::int32_t owner) {
  if (owner == StepRuns::kGoesOn) return;
  hold_bandwidth(matching_.transfer(TransferId(owner)), false);
  end(TransferId(owner));
}

void Transfers::end(TransferId id) {
  if (buffered_ && matching_.group(matching_.transfer(id).group).channel()) {
    mailboxes_.arrive(id);
    return;
  }
  const Transfer transfer = matching_.transfer(id);
  PlanCode& plan = matching_.plan(transfer.plan);
  const Time took = clock_.now() - transfer.started;
  const StreamId one = transfer.first.exists() ? transfer.first : transfer.sides[0];
  const std::int64_t times = streams_.stands_for(posts_[one].rank);
  plan.busy_ps += Int128{took.ps()} * (plan.participants * times);
  if (jobs_.in_reported_step()) plan.ended += times, plan.spent += took * times;
  matching_.release(id);
  if (!transfer.from_copy) return for_participants(transfer, [&](StreamId stream) { end_leg(stream, transfer); });
  staged_sends_.end(transfer.sides[0], transfer);
  end_leg(transfer.sides[1], transfer);
}

// A collective, or one leg of the stream's messages, has ended.
void Transfers::end_leg(StreamId id, const Transfer& transfer) {
  Post& post = posts_[id];
  met(id, transfer.started, transfer.moving_from);
  if (--post.legs_left > 0) return;
  const Place& place = streams_.place(id);
  devices_.give_back(post.rank, post.sms_hold);
  // With one of another role that came as late as one of ours, no one of ours made us wait longer.
  end_op(id, account::late(transfer.first.exists()
                               ? transfer.last_role != nullptr && same_stage(*transfer.last_role, *place.code)
                               : place.segment().same_role));
}

void Transfers::end_op(StreamId id, result::Share late) {
  const Post& post = posts_[id];
  const Place& place = streams_.place(id);
  const Segment& segment = place.segment();
  if (records_.wanted(place.rank, place.step)) {
    result::OpRecord& record = records_.keep(id, place, segment.ops.first, post.posted, clock_.now());
    record.waited_ps = (post.started - post.posted).ps();
    record.waited_for = late;
    record.moving_ps = (clock_.now() - std::max(post.started, post.moving_from)).ps();
  }
  streams_.spent(id, late, post.started);
  streams_.spent(id, segment.share, clock_.now());
  streams_.finish(id);
}

}  // namespace rehearse::engine
