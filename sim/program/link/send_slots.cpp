// See send_slots.h. Ranks of a role do alike, so one of each stands for all, as in matches.h.
#include "sim/program/link/send_slots.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/base/check.h"
#include "sim/program/link/matches.h"
#include "sim/program/link/token_run.h"

namespace rehearse::program {
namespace {

constexpr int kSteps = 2;  // the second is like all later ones
constexpr int kMostSlots = 1024;

class StepExecution {
 public:
  StepExecution(const std::vector<Timeline>& timelines, const RoleMatches& matches, int slots)
      : timelines_(timelines), matches_(matches), slots_(slots) {
    for (const Timeline& t : timelines) {
      called_.emplace_back(t.calls.sequences.size(), 0);
      done_.emplace_back(t.streams.size(), 0);
      posted_.emplace_back(t.streams.size(), 0);
    }
  }

  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t role = 0; role < timelines_.size(); ++role)
        for (std::size_t stream = 0; stream < timelines_[role].streams.size(); ++stream)
          while (advance(role, stream)) moved = true;
    }
    for (std::size_t role = 0; role < timelines_.size(); ++role)
      for (std::size_t stream = 0; stream < timelines_[role].streams.size(); ++stream)
        if (done_[role][stream] < kSteps * timelines_[role].per_step(static_cast<std::int32_t>(stream))) return false;
    return true;
  }

 private:
  // Posts and, if it can be, ends the next op of a stream.
  bool advance(std::size_t role, std::size_t stream) {
    const Timeline& t = timelines_[role];
    const std::int64_t n = t.per_step(static_cast<std::int32_t>(stream)), next = done_[role][stream];
    if (n == 0 || next >= kSteps * n) return false;
    const OpInstance& i = t.instances[static_cast<std::size_t>(t.streams[stream][static_cast<std::size_t>(next % n)])];
    for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
      const StreamWait& wait = t.waits[w];
      if (done_[role][static_cast<std::size_t>(wait.stream)] < next / n * t.per_step(wait.stream) + wait.position)
        return false;
    }
    bool moved = false;
    if (posted_[role][stream] == next) {
      if (slots_ > 0 && sends_alone(t.op(i)) && full(role, stream)) return false;
      post(role, stream, i);
      ++posted_[role][stream];
      moved = true;
    }
    if (!met(role, i, next / n)) return moved;
    ++done_[role][stream];
    return true;
  }

  static bool sends_alone(const Op& op) {
    const auto* p = std::get_if<PointToPoint>(&op.shape);
    return p != nullptr && p->legs.size() == 1 && p->legs.front().send;
  }

  void post(std::size_t role, std::size_t stream, const OpInstance& i) {
    const Timeline& t = timelines_[role];
    for (const TransferCall& call : t.calls.of(i.body, i.op)) {
      const std::int64_t number = called_[role][static_cast<std::size_t>(call.sequence)]++;
      if (slots_ > 0 && sends_alone(t.op(i))) kept_[{role, stream}].insert({call.sequence, number});
    }
  }

  // Whether every copy of the stream still waits for its receiver.
  bool full(std::size_t role, std::size_t stream) {
    auto& kept = kept_[{role, stream}];
    std::erase_if(kept, [&](const auto& k) { return matched(role, k.first, k.second); });
    return static_cast<int>(kept.size()) >= slots_;
  }

  // Whether all that a call is matched by have made theirs.
  bool matched(std::size_t role, std::int32_t sequence, std::int64_t number) const {
    const SequenceMatch& own = matches_.of[role][static_cast<std::size_t>(sequence)];
    if (own.match < 0) return true;
    const auto& sides = matches_.matches[static_cast<std::size_t>(own.match)].sides;
    return std::all_of(sides.begin(), sides.end(), [&](const MatchSide& side) {
      return called_[static_cast<std::size_t>(side.role)][static_cast<std::size_t>(side.sequence)] > number;
    });
  }

  bool met(std::size_t role, const OpInstance& i, std::int64_t step) const {
    const Timeline& t = timelines_[role];
    if (slots_ > 0 && sends_alone(t.op(i))) return true;
    const auto calls = t.calls.of(i.body, i.op);
    return std::all_of(calls.begin(), calls.end(), [&](const TransferCall& call) {
      return matched(role, call.sequence, t.calls.number(call, step, i.slot));
    });
  }

  const std::vector<Timeline>& timelines_;
  const RoleMatches& matches_;
  const int slots_;
  std::vector<std::vector<std::int64_t>> done_, posted_;  // by role and stream: ops, since the beginning
  std::vector<std::vector<std::int64_t>> called_;         // by role and sequence: calls made
  // By role and stream: the sends, by sequence and number, that lie in copies.
  std::map<std::pair<std::size_t, std::size_t>, std::set<std::pair<std::int32_t, std::int64_t>>> kept_;
};

}  // namespace

int send_slots(const Program& program, const std::vector<Timeline>& timelines, const GridView& grid) {
  std::vector<RoleCalls> calls;
  for (const Timeline& t : timelines) calls.push_back(t.calls);
  const RoleMatches matches = match_roles(program, calls, grid);
  if (StepExecution(timelines, matches, 0).ends()) return 0;
  for (int slots = 1; slots <= kMostSlots; slots *= 2)
    if (StepExecution(timelines, matches, slots).ends()) return slots;
  REHEARSE_CHECK(false, "the ranks wait for one another however many messages are kept");
  return 0;
}

bool sends_alone(const Op& op) {
  const auto* p = std::get_if<PointToPoint>(&op.shape);
  return p != nullptr && p->legs.size() == 1 && p->legs.front().send;
}

std::vector<std::int64_t> send_slot_bytes(const Role& role) {
  std::vector<std::int64_t> bytes(role.streams.size(), 0);
  for (const Body& body : role.bodies)
    for (const Op& op : body.ops) {
      if (!sends_alone(op)) continue;
      std::int64_t& most = bytes[static_cast<std::size_t>(op.stream)];
      most = std::max(most, std::get<PointToPoint>(op.shape).legs.front().elements * size_of(op.dtype));
    }
  return bytes;
}

Arenas lay_out_arenas(const Program& program, const GridView& grid, bool sends_wait) {
  Arenas arenas;
  for (const Role& role : program.roles)
    arenas.places.push_back(place_buffers(role, resolve_waits(role), kArenaAlignment));
  const SendSlots sends = send_slots(program, arenas.by_role(), grid, sends_wait);
  arenas.send_slots = sends.slots;
  arenas.drains = sends.drains;
  return arenas;
}

SendSlots send_slots(const Program& program, const std::vector<const ArenaPlaces*>& places, const GridView& grid,
                     bool sends_wait) {
  std::vector<RoleCalls> calls;
  for (const Role& role : program.roles) calls.push_back(number_calls(role, grid.size));
  const RoleMatches matches = match_roles(program, calls, grid);
  const auto drains = [&](int slots) { return TokenRun(program, calls, matches, places, slots).run(); };
  if (!sends_wait) return {kBufferedSends, drains(kBufferedSends)};
  const bool sends = std::any_of(program.roles.begin(), program.roles.end(), [](const Role& role) {
    const std::vector<std::int64_t> bytes = send_slot_bytes(role);
    return std::any_of(bytes.begin(), bytes.end(), [](std::int64_t slot) { return slot > 0; });
  });
  for (int slots = 0; slots <= (sends ? kMostSlots : 0); slots = std::max(1, 2 * slots))
    if (drains(slots)) return {slots, true};
  return {0, false};
}

}  // namespace rehearse::program
