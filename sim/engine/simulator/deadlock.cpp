// See deadlock.h.
#include "sim/engine/simulator/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>
#include <vector>

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

class DeadlockText {
 public:
  explicit DeadlockText(const StuckParts& parts) : parts_(parts) {}

  std::string describe() {
    std::string text = fmt::format("deadlock at {}:", format_time(parts_.now));
    const StreamId first = list_ranks_that_wait(text);
    if (!first.exists()) return text;
    text += "\nThe chain:";
    follow(first, text);
    return text;
  }

 private:
  struct Stuck {
    std::string text;  // what it waits for
    StreamId next;     // the stream that would have to go on; none: none would
  };

  const RankInfo& rank(RankId id) const { return parts_.ranks[id]; }
  const Place& place(StreamId id) const { return parts_.streams.place(id); }

  // " of NAME" for a job alongside the reported one.
  std::string of_job(JobId job) const { return job == kReported ? "" : " of " + parts_.codes[job].job->name; }

  std::string rank_name(RankId id) const {
    const JobId job = rank(id).code->job;
    return fmt::format("rank {}{}", parts_.ranks[id].number, of_job(job));
  }

  std::string name_of(StreamId id) const {
    const Place& at = place(id);
    const program::Role& role = *at.code->role;
    const program::Slot& slot = role.slots[at.slot.index()];
    return fmt::format("{} ({}), stream {}, op {} of {} (step {}, slot {}, micro-batch {})", rank_name(at.rank),
                       role.name, role.streams[static_cast<std::size_t>(at.stream)].name,
                       at.code->op(at.segment().ops.first).name, role.bodies[static_cast<std::size_t>(slot.body)].name,
                       at.step, at.slot.value(), slot.micro_batch);
  }

  Stuck describe_wait(RankId id, WaitId number) const {
    const RankInfo& info = rank(id);
    const Wait& wait = info.code->waits[number];
    const program::Role& role = *info.code->role;
    if (wait.event < 0)
      return {fmt::format("memory that stream {} still uses", role.streams[static_cast<std::size_t>(wait.stream)].name),
              info.stream(wait.stream)};
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops)
        if (op.records == wait.event) {
          const bool sync = std::holds_alternative<program::HostSync>(op.shape);
          return {fmt::format("event {}, recorded by {} of {} on stream {}",
                              role.events[static_cast<std::size_t>(wait.event)].name, op.name, body.name,
                              role.streams[static_cast<std::size_t>(op.stream)].name),
                  sync ? StreamId() : info.stream(op.stream)};
        }
    return {};
  }

  // Whether a segment of the code makes the call of a sequence that is `in_step`-th of a step, in some slot.
  static bool makes_call(const RoleCode& code, const Segment& segment, std::int32_t sequence, std::int64_t in_step) {
    if (segment.kind == SegmentKind::kernels) return false;
    const program::BodyId body = code.ops[segment.ops.first].body;
    for (const SlotId slot : code.slot_body.ids()) {
      if (code.slot_body[slot] != body) continue;
      const std::int64_t base = code.sequences[static_cast<std::size_t>(sequence)].before[slot.index()];
      if (segment.kind == SegmentKind::collective && segment.sequence == sequence && base + segment.ordinal == in_step)
        return true;
      for (const LegId l : segment.legs)
        if (code.legs[l].sequence == sequence && base + code.legs[l].ordinal == in_step) return true;
    }
    return false;
  }

  // The stream of a rank that makes the given call, if it ever does.
  StreamId poster(RankId id, ProcessGroupId group, std::int64_t call, bool send) const {
    const RankInfo& info = rank(id);
    const RoleCode& code = *info.code;
    for (std::int32_t s = 0; s < static_cast<std::int32_t>(code.sequences.size()); ++s) {
      const program::CallSequence& sequence = code.sequences[static_cast<std::size_t>(s)];
      if (parts_.matching.group_of(id, s) != group) continue;
      if (sequence.group < 0 && sequence.send != send) continue;
      if (call >= sequence.per_step * parts_.jobs.stop(code.job)) return {};
      for (const Segment& segment : code.segments)
        if (makes_call(code, segment, s, call % sequence.per_step))
          return info.stream(code.op(segment.ops.first).stream);
    }
    return {};
  }

  // Who has not posted an open transfer yet.
  Stuck describe_open(ProcessGroupId group, std::int64_t call) const {
    const GroupState& state = parts_.matching.group(group);
    const RankId first = parts_.jobs.ranks(state.job).first;
    for (TransferId t = state.open; t.exists(); t = parts_.matching.transfer(t).next_open) {
      const Transfer& transfer = parts_.matching.transfer(t);
      if (transfer.call != call) continue;
      if (state.channel()) {
        const bool send = !transfer.sides[0].exists();  // the missing side
        const RankId peer = first + state.group->ranks[send ? 0 : 1];
        return {fmt::format("{} to {} (channel {}, message {})", rank_name(peer), send ? "send" : "receive",
                            state.group->channel, call),
                poster(peer, group, call, send)};
      }
      std::vector<int> missing;
      for (const int member : state.group->ranks)
        if (!has_posted(transfer, first + member)) missing.push_back(member);
      const program::Program& program = parts_.codes[state.job].job->program;
      return {fmt::format("{}{} to post call {} of group {}", list_ranks(missing), of_job(state.job), call,
                          program.groups[static_cast<std::size_t>(state.group->group)].name),
              missing.empty() ? StreamId() : poster(first + missing[0], group, call, false)};
    }
    return {};
  }

  bool has_posted(const Transfer& transfer, RankId id) const {
    for (StreamId s = transfer.first; s.exists(); s = parts_.transfers.next_participant(s))
      if (place(s).rank == id) return true;
    return false;
  }

  Stuck describe_transfer(StreamId id) const {
    const Place& at = place(id);
    const Segment& segment = at.segment();
    const auto describe_call = [&](std::int32_t sequence, std::int32_t ordinal) {
      return describe_open(parts_.matching.group_of(at.rank, sequence),
                           at.code->call(sequence, ordinal, at.step, at.slot));
    };
    if (segment.kind == SegmentKind::collective) return describe_call(segment.sequence, segment.ordinal);
    for (const LegId l : segment.legs) {
      const LegCode& leg = at.code->legs[l];
      if (parts_.buffered && leg.send) continue;
      Stuck stuck = describe_call(leg.sequence, leg.ordinal);
      if (!stuck.text.empty()) return stuck;
    }
    return {};
  }

  Stuck describe(StreamId id) const {
    const Place& at = place(id);
    switch (parts_.streams.status(id)) {
      case Status::waiting:
        return describe_wait(at.rank, parts_.streams.held_by(id).wait);
      case Status::transferring:
        return describe_transfer(id);
      case Status::held_by_host: {
        const SyncCode& sync = at.code->syncs[parts_.hosts.sync(at.rank)];
        const program::Body& body = at.code->role->bodies[static_cast<std::size_t>(sync.body)];
        Stuck stuck = describe_wait(at.rank, parts_.hosts.held_by(at.rank).wait);
        stuck.text = fmt::format("the host at {} of {}, which waits for {}",
                                 body.ops[static_cast<std::size_t>(sync.op)].name, body.name, stuck.text);
        return stuck;
      }
      default:
        return {};
    }
  }

  // One stream a rank: the one that is in a transfer, as long as there is one. Returns the first.
  StreamId list_ranks_that_wait(std::string& text) const {
    int ranks = 0;
    StreamId first;
    RankId last_rank;
    for (const StreamId id : parts_.streams.ids()) {
      const RankId of = place(id).rank;
      if (parts_.streams.status(id) == Status::done || of == last_rank) continue;
      last_rank = of;
      StreamId shown = id;
      for (const StreamId other : rank(of).streams())
        if (parts_.streams.status(other) == Status::transferring) {
          shown = other;
          break;
        }
      if (!first.exists()) first = shown;
      if (++ranks <= kRanksListed) text += fmt::format("\n  {} waits for {}", name_of(shown), describe(shown).text);
    }
    if (ranks > kRanksListed) text += fmt::format("\n  and {} more ranks", ranks - kRanksListed);
    return first;
  }

  void follow(StreamId first, std::string& text) const {
    std::vector<StreamId> seen;
    for (StreamId id = first; id.exists();) {
      const std::string name = rank_name(place(id).rank);
      if (parts_.streams.status(id) == Status::done) {
        text += fmt::format("\n  {} is done", name);
        return;
      }
      if (std::find(seen.begin(), seen.end(), id) != seen.end()) {
        text += fmt::format("\n  which is the op of {} again: a circle", name);
        return;
      }
      seen.push_back(id);
      const Stuck stuck = describe(id);
      text += fmt::format("\n  {} waits for {}", name_of(id), stuck.text);
      id = stuck.next;
    }
  }

  const StuckParts& parts_;
};

}  // namespace

std::string describe_deadlock(const StuckParts& parts) {
  return DeadlockText(parts).describe();
}

}  // namespace rehearse::engine
