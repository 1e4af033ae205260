// Untimed token execution of one step: every stream of every representative is a queue in program order; a kernel is
// done as soon as it is first in its queue and its waits are met; a transfer is then posted, and done once everyone it
// meets has posted too (rendezvous: no sender runs ahead). The host issues nothing beyond a host sync that is not done.
// What can be reached does not depend on the order of moves, so one sweep after another until nothing moves is exact.
// Left out: the bounded launch queue, and eager sends (a program that needs them is reported).
//
// If something is left, every stuck rank's first unfinished op in program order is a posted transfer: its waits are for
// earlier ops, which are done. So each stuck rank waits for another stuck rank there, and the chain ends in a circle.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"
#include "sim/program/link/waits.h"

namespace rehearse::program {
namespace {

// Ops by position in program order: slot, then op.
struct Position {
  int slot = 0, op = 0;
  auto operator<=>(const Position&) const = default;
};

// The `call`-th of a side of a match.
struct Post {
  int match, side, call;
};

class RoleTokens {
 public:
  RoleTokens(const Role& role, const RoleCalls& calls, const std::vector<SequenceMatch>& matches);

  // The op at the head of a stream, or nullptr when the stream has drained.
  const Op* head(StreamId stream, Position& position);
  bool may_start(Position position) const;
  void finish(StreamId stream, const Op& op);

  const Role& role() const { return role_; }
  // Of the op there the calls that others' match; none of a kernel.
  std::vector<Post> posts(Position p) const;
  // The first op in program order that is not done; false if there is none.
  bool first_unfinished(Position& position);

 private:
  const Role& role_;
  const RoleCalls& calls_;
  const std::vector<SequenceMatch>& matches_;
  const RoleWaits waits_;
  const StepOrder order_;
  std::vector<std::vector<std::vector<int>>> queue_;  // by body and stream: its ops
  std::vector<int> recorded_;                         // by event: how often so far
  std::vector<Position> syncs_;                       // host syncs of the step
  std::size_t syncs_done_ = 0;
  struct Cursor {
    int slot = 0, index = 0;
  };
  std::vector<Cursor> cursors_;  // by stream
};

RoleTokens::RoleTokens(const Role& role, const RoleCalls& calls, const std::vector<SequenceMatch>& matches)
    : role_(role),
      calls_(calls),
      matches_(matches),
      waits_(resolve_waits(role)),
      order_(role),
      recorded_(role.events.size(), 0),
      cursors_(role.streams.size()) {
  std::vector<std::vector<int>> syncs_of(role.bodies.size());
  for (std::size_t b = 0; b < role.bodies.size(); ++b) {
    auto& queue = queue_.emplace_back(role.streams.size());
    for (int i = 0; i < static_cast<int>(role.bodies[b].ops.size()); ++i) {
      const Op& op = role.bodies[b].ops[static_cast<std::size_t>(i)];
      queue[static_cast<std::size_t>(op.stream)].push_back(i);
      if (std::holds_alternative<HostSync>(op.shape)) syncs_of[b].push_back(i);
    }
  }
  for (int s = 0; s < static_cast<int>(role.slots.size()); ++s) {
    const auto body = static_cast<std::size_t>(role.slots[static_cast<std::size_t>(s)].body);
    for (const int i : syncs_of[body]) syncs_.push_back({s, i});
  }
}

std::vector<Post> RoleTokens::posts(Position p) const {
  std::vector<Post> all;
  for (const TransferCall& call : calls_.of(role_.slots[static_cast<std::size_t>(p.slot)].body, p.op)) {
    const SequenceMatch& m = matches_[static_cast<std::size_t>(call.sequence)];
    if (m.match >= 0) all.push_back({m.match, m.side, static_cast<int>(calls_.number(call, 0, p.slot))});
  }
  return all;
}

const Op* RoleTokens::head(StreamId stream, Position& position) {
  Cursor& c = cursors_[static_cast<std::size_t>(stream)];
  for (; c.slot < static_cast<int>(role_.slots.size()); ++c.slot, c.index = 0) {
    const auto body = static_cast<std::size_t>(role_.slots[static_cast<std::size_t>(c.slot)].body);
    const auto& queue = queue_[body][static_cast<std::size_t>(stream)];
    if (c.index >= static_cast<int>(queue.size())) continue;
    position = {c.slot, queue[static_cast<std::size_t>(c.index)]};
    return &role_.bodies[body].ops[static_cast<std::size_t>(position.op)];
  }
  return nullptr;
}

bool RoleTokens::may_start(Position position) const {
  if (syncs_done_ < syncs_.size() && position > syncs_[syncs_done_]) return false;
  for (const EventWait& wait : waits_.of(role_.slots[static_cast<std::size_t>(position.slot)].body, position.op)) {
    // The event has one recorder on one stream, so records happen in order.
    const int needed = order_.runs_before(position.slot, wait.body) + (wait.same_slot ? 1 : 0);
    if (recorded_[static_cast<std::size_t>(wait.event)] < needed) return false;
  }
  return true;
}

void RoleTokens::finish(StreamId stream, const Op& op) {
  ++cursors_[static_cast<std::size_t>(stream)].index;
  if (op.records >= 0) ++recorded_[static_cast<std::size_t>(op.records)];
  if (std::holds_alternative<HostSync>(op.shape)) ++syncs_done_;
}

bool RoleTokens::first_unfinished(Position& position) {
  bool found = false;
  for (StreamId s = 0; s < static_cast<StreamId>(role_.streams.size()); ++s) {
    Position p;
    if (head(s, p) == nullptr || (found && p > position)) continue;
    position = p;
    found = true;
  }
  return found;
}

class TokenRun {
 public:
  TokenRun(const Program& program, const Transfers& transfers) : transfers_(transfers) {
    for (std::size_t r = 0; r < program.roles.size(); ++r)
      roles_.emplace_back(program.roles[r], transfers.calls[r], transfers.matches.of[r]);
    for (const Match& m : transfers.matches.matches) {
      auto& sides = posted_.emplace_back();
      for (const MatchSide& s : m.sides) sides.emplace_back(transfers.calls_of(s).size(), false);
    }
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (RoleTokens& role : roles_) moved = sweep(role) || moved;
    }
  }

  // Empty if everything drained.
  std::string stuck_text();

 private:
  bool sweep(RoleTokens& role);
  bool advance(RoleTokens& role, StreamId stream);
  void post(const std::vector<Post>& posts);
  bool posted(const Post& p, std::size_t side) const {
    return posted_[static_cast<std::size_t>(p.match)][side][static_cast<std::size_t>(p.call)];
  }
  bool met(const std::vector<Post>& posts) const;
  // The first side that a posted transfer still waits for, and the call it waits for; the role of that side.
  RoleId waits_for(const RoleTokens& role, Position position, std::string& text) const;

  const Transfers& transfers_;
  std::vector<RoleTokens> roles_;
  std::vector<std::vector<std::vector<bool>>> posted_;  // by match, side, call
  bool posted_new_ = false;
};

bool TokenRun::sweep(RoleTokens& role) {
  bool any = false, moved = true;
  posted_new_ = false;
  while (moved) {
    moved = false;
    for (StreamId s = 0; s < static_cast<StreamId>(role.role().streams.size()); ++s)
      while (advance(role, s)) moved = any = true;
  }
  return any || posted_new_;
}

bool TokenRun::advance(RoleTokens& role, StreamId stream) {
  check_interrupt();
  Position position;
  const Op* op = role.head(stream, position);
  if (op == nullptr || !role.may_start(position)) return false;
  if (is_transfer(*op)) {
    const std::vector<Post> posts = role.posts(position);
    post(posts);
    if (!met(posts)) return false;
  }
  role.finish(stream, *op);
  return true;
}

void TokenRun::post(const std::vector<Post>& posts) {
  for (const Post& p : posts) {
    auto flag =
        posted_[static_cast<std::size_t>(p.match)][static_cast<std::size_t>(p.side)][static_cast<std::size_t>(p.call)];
    if (flag) continue;
    flag = true;
    posted_new_ = true;
  }
}

bool TokenRun::met(const std::vector<Post>& posts) const {
  for (const Post& p : posts)
    for (std::size_t s = 0; s < posted_[static_cast<std::size_t>(p.match)].size(); ++s)
      if (!posted(p, s)) return false;
  return true;
}

RoleId TokenRun::waits_for(const RoleTokens& role, Position position, std::string& text) const {
  for (const Post& p : role.posts(position)) {
    const Match& m = transfers_.matches.matches[static_cast<std::size_t>(p.match)];
    for (std::size_t s = 0; s < m.sides.size(); ++s) {
      if (posted(p, s)) continue;
      const MatchSide& side = m.sides[s];
      const Role& other = roles_[static_cast<std::size_t>(side.role)].role();
      const CallPlace& call = transfers_.calls_of(side)[static_cast<std::size_t>(p.call)];
      text = fmt::format("{} to reach {}", rank_text(other, side.rank), place_text(other, call.slot, call.op));
      return side.role;
    }
  }
  return -1;
}

std::string TokenRun::stuck_text() {
  std::vector<RoleId> next(roles_.size(), -1);
  std::string text;
  for (std::size_t r = 0; r < roles_.size(); ++r) {
    Position position;
    if (!roles_[r].first_unfinished(position)) continue;
    std::string whom;
    next[r] = waits_for(roles_[r], position, whom);
    REHEARSE_CHECK(next[r] >= 0, "{} is stuck in an op that meets nobody: {}", roles_[r].role().name,
                   place_text(roles_[r].role(), position.slot, position.op));
    if (!text.empty()) text += "; ";
    text += fmt::format("{} waits in {} for {}", rank_text(roles_[r].role(), transfers_.matches.representative[r]),
                        place_text(roles_[r].role(), position.slot, position.op), whom);
  }
  if (text.empty()) return text;
  // From the first stuck role, as many steps as there are roles end on the circle.
  std::size_t at = 0;
  while (next[at] < 0) ++at;
  for (std::size_t i = 0; i < roles_.size(); ++i) at = static_cast<std::size_t>(next[at]);
  std::string circle = fmt::format("rank {}", transfers_.matches.representative[at]);
  for (auto r = static_cast<std::size_t>(next[at]); r != at; r = static_cast<std::size_t>(next[r]))
    circle += fmt::format(" -> rank {}", transfers_.matches.representative[r]);
  return fmt::format("{}. Circle: {} -> rank {}", text, circle, transfers_.matches.representative[at]);
}

}  // namespace

void check_deadlock(const Program& program, const Transfers& transfers, std::vector<Violation>& violations) {
  TokenRun run(program, transfers);
  run.run();
  if (std::string text = run.stuck_text(); !text.empty()) violations.push_back({"deadlock", std::move(text)});
}

}  // namespace rehearse::program
