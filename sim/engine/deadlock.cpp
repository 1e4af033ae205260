// Who waits for whom when nothing can happen any more: the first stuck ranks with the op each is at and what that op
// waits for, then the chain from the first of them, to the circle if there is one.
#include <fmt/format.h>

#include <algorithm>

#include "sim/engine/simulator.h"

namespace rehearse::engine {

namespace {

constexpr int kRanksListed = 10;
constexpr std::size_t kPeersListed = 8;

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(ranks.size(), kPeersListed); ++i)
    text += fmt::format("{} {}", i == 0 ? "" : ",", ranks[i]);
  if (ranks.size() > kPeersListed) text += fmt::format(" and {} more", ranks.size() - kPeersListed);
  return text;
}

}  // namespace

// " of NAME" for a job beside the reported one.
std::string Simulator::of_job(std::int32_t job) const {
  return job == 0 ? "" : " of " + codes_[static_cast<std::size_t>(job)].job->name;
}

std::string Simulator::rank_name(std::int32_t rank) const {
  const std::int32_t job = ranks_[static_cast<std::size_t>(rank)].code->job;
  return fmt::format("rank {}{}", rank - jobs_[static_cast<std::size_t>(job)].first_rank, of_job(job));
}

std::string Simulator::name_of(LaneId id) const {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const program::Role& role = *lane.code->role;
  const program::Slot& slot = role.slots[static_cast<std::size_t>(lane.slot)];
  return fmt::format("{} ({}), stream {}, op {} of {} (step {}, slot {}, micro-batch {})", rank_name(lane.rank),
                     role.name, role.streams[static_cast<std::size_t>(lane.stream)].name,
                     lane.code->op(item_of(lane).first).name, role.bodies[static_cast<std::size_t>(slot.body)].name,
                     lane.step, lane.slot, slot.micro_batch);
}

Simulator::Stuck Simulator::describe_wait(std::int32_t index, std::int32_t number) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(index)];
  const Wait& wait = rank.code->waits[static_cast<std::size_t>(number)];
  const program::Role& role = *rank.code->role;
  if (wait.event < 0)
    return {fmt::format("memory that stream {} still uses", role.streams[static_cast<std::size_t>(wait.stream)].name),
            rank.first_lane + wait.stream};
  for (const program::Body& body : role.bodies)
    for (const program::Op& op : body.ops)
      if (op.records == wait.event) {
        const bool sync = std::holds_alternative<program::HostSync>(op.shape);
        return {fmt::format("event {}, recorded by {} of {} on stream {}",
                            role.events[static_cast<std::size_t>(wait.event)].name, op.name, body.name,
                            role.streams[static_cast<std::size_t>(op.stream)].name),
                sync ? -1 : rank.first_lane + op.stream};
      }
  return {};
}

// The lane of `rank` that makes the given call, if it ever does.
Simulator::LaneId Simulator::poster(std::int32_t index, std::int32_t group, std::int64_t call, bool send) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(index)];
  const RoleCode& code = *rank.code;
  for (std::int32_t s = 0; s < static_cast<std::int32_t>(code.sequences.size()); ++s) {
    const program::CallSequence& sequence = code.sequences[static_cast<std::size_t>(s)];
    if (matching_.group_of(index, s) != group) continue;
    if (sequence.group < 0 && sequence.send != send) continue;
    if (call >= sequence.per_step * jobs_[static_cast<std::size_t>(code.job)].stop) return -1;
    const std::int64_t in_step = call % sequence.per_step;
    for (const Item& item : code.items) {
      const OpRef& op = code.ops[static_cast<std::size_t>(item.first)];
      for (std::size_t slot = 0; slot < code.slot_body.size(); ++slot) {
        if (code.slot_body[slot] != op.body || item.kind == ItemKind::kernels) continue;
        const LaneId lane = rank.first_lane + code.op(item.first).stream;
        const std::int64_t base = sequence.before[slot];
        if (item.kind == ItemKind::collective && item.sequence == s && base + item.ordinal == in_step) return lane;
        for (std::int32_t l = item.leg_first; l < item.leg_last; ++l) {
          const LegCode& leg = code.legs[static_cast<std::size_t>(l)];
          if (leg.sequence == s && base + leg.ordinal == in_step) return lane;
        }
      }
    }
  }
  return -1;
}

// Who has not posted an open transfer yet.
Simulator::Stuck Simulator::describe_open(std::int32_t group, std::int64_t call) const {
  const GroupState& state = matching_.group(group);
  const std::int32_t first = jobs_[static_cast<std::size_t>(state.job)].first_rank;
  for (std::int32_t t = state.open; t >= 0; t = matching_.transfer(t).next_open) {
    const Transfer& transfer = matching_.transfer(t);
    if (transfer.call != call) continue;
    if (state.channel()) {
      const bool send = transfer.sides[0] < 0;  // the missing side
      const int peer = state.group->ranks[send ? 0 : 1];
      return {fmt::format("{} to {} (channel {}, message {})", rank_name(first + peer), send ? "send" : "receive",
                          state.group->channel, call),
              poster(first + peer, group, call, send)};
    }
    std::vector<int> missing;
    for (const int member : state.group->ranks) {
      bool posted = false;
      for (LaneId id = transfer.first; id >= 0; id = lanes_[static_cast<std::size_t>(id)].next_participant)
        posted = posted || lanes_[static_cast<std::size_t>(id)].rank == first + member;
      if (!posted) missing.push_back(member);
    }
    const program::Program& program = codes_[static_cast<std::size_t>(state.job)].job->program;
    return {fmt::format("{}{} to post call {} of group {}", list_ranks(missing), of_job(state.job), call,
                        program.groups[static_cast<std::size_t>(state.group->group)].name),
            missing.empty() ? -1 : poster(first + missing[0], group, call, false)};
  }
  return {};
}

Simulator::Stuck Simulator::describe_transfer(LaneId id) const {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  const Item& item = item_of(lane);
  const auto describe_call = [&](std::int32_t sequence, std::int32_t ordinal) {
    return describe_open(matching_.group_of(lane.rank, sequence),
                         lane.code->call(sequence, ordinal, lane.step, lane.slot));
  };
  if (item.kind == ItemKind::collective) return describe_call(item.sequence, item.ordinal);
  for (std::int32_t l = item.leg_first; l < item.leg_last; ++l) {
    const LegCode& leg = lane.code->legs[static_cast<std::size_t>(l)];
    if (buffered_ && leg.send) continue;
    Stuck stuck = describe_call(leg.sequence, leg.ordinal);
    if (!stuck.text.empty()) return stuck;
  }
  return {};
}

Simulator::Stuck Simulator::describe(LaneId id) const {
  const Lane& lane = lanes_[static_cast<std::size_t>(id)];
  switch (lane.status) {
    case Status::waiting:
      return describe_wait(lane.rank, held_[static_cast<std::size_t>(id)].wait);
    case Status::transferring:
      return describe_transfer(id);
    case Status::held_by_host: {
      const Host& host = hosts_[static_cast<std::size_t>(lane.rank)];
      const SyncCode& sync = lane.code->syncs[static_cast<std::size_t>(host.sync)];
      const program::Body& body = lane.code->role->bodies[static_cast<std::size_t>(sync.body)];
      Stuck stuck = describe_wait(lane.rank, host.held.wait);
      stuck.text = fmt::format("the host at {} of {}, which waits for {}",
                               body.ops[static_cast<std::size_t>(sync.op)].name, body.name, stuck.text);
      return stuck;
    }
    default:
      return {};
  }
}

std::string Simulator::describe_deadlock() const {
  std::string text = fmt::format("deadlock at {}:", format_time(Time::from_ps(now_)));
  int ranks = 0;
  LaneId first = -1;
  std::int32_t last_rank = -1;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    // One lane a rank: the one that is in a transfer, as long as there is one.
    if (lane.status == Status::done || lane.rank == last_rank) continue;
    LaneId shown = static_cast<LaneId>(i);
    const Rank& rank = ranks_[static_cast<std::size_t>(lane.rank)];
    for (std::int32_t s = 0; s < rank.code->streams; ++s)
      if (lanes_[static_cast<std::size_t>(rank.first_lane + s)].status == Status::transferring) {
        shown = rank.first_lane + s;
        break;
      }
    last_rank = lane.rank;
    if (first < 0) first = shown;
    if (++ranks <= kRanksListed) text += fmt::format("\n  {} waits for {}", name_of(shown), describe(shown).text);
  }
  if (ranks > kRanksListed) text += fmt::format("\n  and {} more ranks", ranks - kRanksListed);
  if (first < 0) return text;
  text += "\nThe chain:";
  std::vector<LaneId> seen;
  for (LaneId id = first; id >= 0;) {
    if (lanes_[static_cast<std::size_t>(id)].status == Status::done) {
      text += fmt::format("\n  {} is done", rank_name(lanes_[static_cast<std::size_t>(id)].rank));
      break;
    }
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) {
      text += fmt::format("\n  which is the op of {} again: a circle",
                          rank_name(lanes_[static_cast<std::size_t>(id)].rank));
      break;
    }
    seen.push_back(id);
    const Stuck stuck = describe(id);
    text += fmt::format("\n  {} waits for {}", name_of(id), stuck.text);
    id = stuck.next;
  }
  return text;
}

}  // namespace rehearse::engine
