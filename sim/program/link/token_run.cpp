// See token_run.h.
#include "sim/program/link/token_run.h"

#include <algorithm>
#include <bit>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/link/send_slots.h"

namespace rehearse::program {
namespace {

constexpr std::size_t kMostStreams = 31;  // bits of a mask

// Whether others must come to the op: a collective among ranks of one role, which are alike, begins as it is posted.
bool meets_others(const Op& op, std::span<const TransferCall> calls, const std::vector<SequenceMatch>& matches) {
  if (!is_transfer(op)) return false;
  return !std::holds_alternative<Collective>(op.shape) ||
         std::any_of(calls.begin(), calls.end(), [&](const TransferCall& call) {
           return matches[static_cast<std::size_t>(call.sequence)].match >= 0;
         });
}

}  // namespace

RoleTokens::RoleTokens(const Role& role, const RoleCalls& calls, const std::vector<SequenceMatch>& matches,
                       const ArenaPlaces* arena)
    : role_(role),
      calls_(calls),
      matches_(matches),
      arena_(arena),
      waits_(resolve_waits(role)),
      order_(role, arena),
      cursors_(role.streams.size()),
      held_by_(role.streams.size(), 0) {
  REHEARSE_CHECK(role.streams.size() <= kMostStreams, "{}: {} streams", role.name, role.streams.size());
  std::vector<std::vector<int>> syncs_of(role.bodies.size());
  for (std::size_t b = 0; b < role.bodies.size(); ++b) {
    first_op_.push_back(stream_of_op_.size());
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(role.bodies[b].ops.size()); ++i) {
      const Op& op = role.bodies[b].ops[static_cast<std::size_t>(i)];
      stream_of_op_.push_back(op.stream);
      const auto body = static_cast<BodyId>(b);
      OpKind kind{meets_others(op, calls.of(body, i), matches), sends_alone(op),
                  std::holds_alternative<HostSync>(op.shape), false};
      kind.free = !kind.transfer && !kind.sync && waits_.of(body, i).empty() &&
                  (arena == nullptr || arena->waits(body, i).empty());
      kind_of_op_.push_back(kind);
      if (kind.sync) syncs_of[b].push_back(i);
    }
  }
  queue_ops();
  for (std::int32_t s = 0; s < static_cast<std::int32_t>(role.slots.size()); ++s) {
    const auto body = static_cast<std::size_t>(role.slots[static_cast<std::size_t>(s)].body);
    for (const int i : syncs_of[body]) syncs_.push_back({s, i});
  }
  for (StreamId s = 0; s < static_cast<StreamId>(role.streams.size()); ++s) reach_head(s);
}

void RoleTokens::queue_ops() {
  std::vector<std::vector<Queued>> queues(role_.streams.size());
  for (std::size_t b = 0; b < role_.bodies.size(); ++b) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(role_.bodies[b].ops.size()); ++i) {
      const std::size_t at = first_op_[b] + static_cast<std::size_t>(i);
      const auto first = static_cast<std::int32_t>(waited_for_.size());
      add_waits(static_cast<BodyId>(b), i);
      queues[static_cast<std::size_t>(stream_of_op_[at])].push_back(
          {i, 0, first, static_cast<std::int32_t>(waited_for_.size()), kind_of_op_[at]});
    }
    for (std::vector<Queued>& queue : queues) {
      auto next = static_cast<std::int32_t>(queue.size());
      for (auto q = static_cast<std::int32_t>(queue.size()); q-- > 0;) {
        if (!queue[static_cast<std::size_t>(q)].kind.free) next = q;
        queue[static_cast<std::size_t>(q)].next_held = next;
      }
      first_queued_.push_back(queued_.size());
      queued_.insert(queued_.end(), queue.begin(), queue.end());
      queue.clear();
    }
  }
  first_queued_.push_back(queued_.size());
}

void RoleTokens::add_waits(BodyId body, std::int32_t op) {
  using In = WaitedFor::In;
  const auto stream = [&](BodyId of, std::int32_t i) {
    return stream_of_op_[first_op_[static_cast<std::size_t>(of)] + static_cast<std::size_t>(i)];
  };
  for (const EventWait& wait : waits_.of(body, op))
    waited_for_.push_back(
        {wait.same_slot ? In::same_slot : In::latest, stream(wait.body, wait.op), wait.body, wait.op, 0});
  if (arena_ != nullptr)
    for (const ReuseWait& wait : arena_->waits(body, op)) {
      WaitedFor& added =
          waited_for_.emplace_back(WaitedFor{In::same_slot, stream(wait.body, wait.op), wait.body, wait.op, 0});
      if (wait.which == ReuseWait::Which::latest) added.in = In::latest;
      if (wait.which != ReuseWait::Which::same_place) continue;
      added.in = In::row;
      added.row = static_cast<std::int32_t>(order_.row(wait));
    }
}

void RoleTokens::posts(StepPosition p, std::vector<Post>& all) const {
  all.clear();
  for (const TransferCall& call : calls_.of(body(p), p.op)) {
    const SequenceMatch& m = matches_[static_cast<std::size_t>(call.sequence)];
    if (m.match >= 0) all.push_back({m.match, m.side, static_cast<std::int32_t>(calls_.number(call, 0, p.slot))});
  }
}

std::optional<StepPosition> RoleTokens::head(StreamId stream) const {
  const Cursor& c = cursors_[static_cast<std::size_t>(stream)];
  if (c.slot == static_cast<std::int32_t>(role_.slots.size())) return std::nullopt;
  return StepPosition{c.slot, c.op};
}

// The cursor goes on to the next slot with ops on the stream, if it is at the end of one.
void RoleTokens::reach_head(StreamId stream) {
  Cursor& c = cursors_[static_cast<std::size_t>(stream)];
  c.ready = false;
  for (; has_head(c); ++c.slot, c.index = 0) {
    const auto queue = this->queue(role_.slots[static_cast<std::size_t>(c.slot)].body, stream);
    if (c.index == static_cast<std::int32_t>(queue.size())) continue;
    c.op = queue[static_cast<std::size_t>(c.index)].op;
    return;
  }
}

bool RoleTokens::held_by_events(StepPosition p) const {
  for (const EventWait& wait : waits_.of(body(p), p.op)) {
    const std::int32_t slot = wait.same_slot ? p.slot : order_.latest(p.slot, wait.body);
    if (body_pending(wait.body, slot, wait.op)) return true;
  }
  return false;
}

std::optional<StepPosition> RoleTokens::held_by_memory(StepPosition p) const {
  if (arena_ == nullptr) return std::nullopt;
  for (const ReuseWait& wait : arena_->waits(body(p), p.op)) {
    const std::int32_t slot = order_.slot_of(wait, p.slot);
    if (body_pending(wait.body, slot, wait.op)) return StepPosition{slot, wait.op};
  }
  return std::nullopt;
}

StreamId RoleTokens::take_to_look_at() {
  if (to_look_at_ == 0) return -1;
  const StreamId stream = std::countr_zero(to_look_at_);
  to_look_at_ &= to_look_at_ - 1;
  return stream;
}

// Whether events, memory or a host sync hold the op at the head.
bool RoleTokens::held(StreamId stream, const Queued& head) {
  Cursor& c = cursors_[static_cast<std::size_t>(stream)];
  const std::uint32_t own = std::uint32_t{1} << stream;
  if (c.held_stream >= 0 && pending(c.held_stream, c.held_slot, c.held_op)) {
    held_by_[static_cast<std::size_t>(c.held_stream)] |= own;
    return true;
  }
  c.held_stream = -1;
  if (held_by_syncs({c.slot, c.op})) {
    behind_sync_ |= own;
    return true;
  }
  for (std::int32_t w = head.first_wait; w < head.last_wait; ++w) {
    const WaitedFor& wait = waited_for_[static_cast<std::size_t>(w)];
    const std::int32_t slot = wait.in == WaitedFor::In::same_slot ? c.slot
                              : wait.in == WaitedFor::In::latest
                                  ? order_.latest(c.slot, wait.body)
                                  : order_.slot_in(static_cast<std::size_t>(wait.row), c.slot);
    if (!pending(wait.stream, slot, wait.op)) continue;
    c.held_stream = wait.stream, c.held_slot = slot, c.held_op = wait.op;
    held_by_[static_cast<std::size_t>(wait.stream)] |= own;
    return true;
  }
  return false;
}

RoleTokens::Advance RoleTokens::go_on(StreamId stream) {
  Cursor& c = cursors_[static_cast<std::size_t>(stream)];
  bool moved = false;
  while (has_head(c)) {
    const auto queue = this->queue(role_.slots[static_cast<std::size_t>(c.slot)].body, stream);
    const Queued& head = queue[static_cast<std::size_t>(c.index)];
    if (c.ready || !held(stream, head)) {
      if (head.kind.transfer) {
        c.ready = true;
        return {true, moved};
      }
    } else {
      return {false, moved};
    }
    moved = true;
    release(held_by_[static_cast<std::size_t>(stream)]);
    if (head.kind.sync) {
      ++syncs_done_;
      release(behind_sync_);
    }
    ++c.index;
    // Behind a sync that is not done no op is free.
    if (c.index < static_cast<std::int32_t>(queue.size()) && syncs_done_ == syncs_.size())
      c.index = queue[static_cast<std::size_t>(c.index)].next_held;
    if (c.index < static_cast<std::int32_t>(queue.size()))
      c.op = queue[static_cast<std::size_t>(c.index)].op;
    else
      reach_head(stream);
  }
  return {false, moved};
}

void RoleTokens::finish(StreamId stream) {
  Cursor& c = cursors_[static_cast<std::size_t>(stream)];
  ++c.index;
  reach_head(stream);
  release(held_by_[static_cast<std::size_t>(stream)]);
}

std::optional<StepPosition> RoleTokens::first_unfinished() const {
  std::optional<StepPosition> first;
  for (StreamId s = 0; s < static_cast<StreamId>(role_.streams.size()); ++s)
    if (const auto p = head(s); p && (!first || *p < *first)) first = p;
  return first;
}

TokenRun::TokenRun(const Program& program, const std::vector<RoleCalls>& calls, const RoleMatches& matches,
                   const std::vector<const ArenaPlaces*>& places, int send_slots)
    : matches_(matches), send_slots_(send_slots) {
  roles_.reserve(program.roles.size());
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    roles_.emplace_back(program.roles[r], calls[r], matches.of[r], places.empty() ? nullptr : places[r]);
    slots_.emplace_back(program.roles[r].streams.size());
    missing_.emplace_back(program.roles[r].streams.size());
  }
  for (const Match& m : matches.matches) {
    auto& sides = posted_.emplace_back();
    for (const MatchSide& s : m.sides) {
      const std::int64_t calls_a_step =
          s.sequence < 0
              ? 0
              : calls[static_cast<std::size_t>(s.role)].sequences[static_cast<std::size_t>(s.sequence)].per_step;
      sides.emplace_back(static_cast<std::size_t>(calls_a_step), false);
    }
  }
}

bool TokenRun::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t role = 0; role < roles_.size(); ++role) moved = sweep(role) || moved;
  }
  for (const RoleTokens& role : roles_)
    if (role.first_unfinished()) return false;
  return true;
}

bool TokenRun::sweep(std::size_t role) {
  bool any = false;
  RoleTokens& tokens = roles_[role];
  tokens.look_at_all();
  for (StreamId s = tokens.take_to_look_at(); s >= 0; s = tokens.take_to_look_at()) {
    posted_new_ = false;
    for (Advance made{true, true}; made.further;) {
      made = send(role, s) ? Advance{true, true} : advance(role, s);
      any = any || made.moved;
    }
    if (!posted_new_) continue;
    any = true;
    tokens.look_at_all();  // another stream of the role may wait for what this one has posted
  }
  return any;
}

TokenRun::Advance TokenRun::advance(std::size_t role, StreamId stream) {
  check_interrupt();
  RoleTokens& tokens = roles_[role];
  const RoleTokens::Advance made = tokens.go_on(stream);
  const Advance held{made.moved, false};
  if (!made.transfer) return held;
  const StepPosition position = *tokens.head(stream);
  if (from_copy(tokens.kind(position))) {
    auto& slots = slots_[role][static_cast<std::size_t>(stream)];
    if (slots.size() == static_cast<std::size_t>(send_slots_)) return held;
    tokens.posts(position, slots.emplace_back());
  } else {
    std::optional<Obstacle>& known = missing_[role][static_cast<std::size_t>(stream)].at_head;
    if (known && absent(*known)) return held;
    tokens.posts(position, posts_);
    post(posts_);
    if ((known = missing(posts_))) return held;
  }
  tokens.finish(stream);
  return {true, true};
}

bool TokenRun::send(std::size_t role, StreamId stream) {
  auto& slots = slots_[role][static_cast<std::size_t>(stream)];
  if (slots.empty()) return false;
  std::optional<Obstacle>& known = missing_[role][static_cast<std::size_t>(stream)].on_its_way;
  if (known && absent(*known)) return false;
  post(slots.front());
  if ((known = missing(slots.front()))) return false;
  slots.pop_front();
  return true;
}

bool TokenRun::from_copy(RoleTokens::OpKind kind) const {
  return send_slots_ > 0 && kind.sends_alone;
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

std::optional<TokenRun::Obstacle> TokenRun::missing(const std::vector<Post>& posts) const {
  for (const Post& p : posts) {
    const bool message = matches_.matches[static_cast<std::size_t>(p.match)].group < 0;
    if (send_slots_ == kBufferedSends && message && p.side == 0) continue;
    const auto& sides = posted_[static_cast<std::size_t>(p.match)];
    const auto call = static_cast<std::size_t>(p.call);
    for (std::size_t s = 0; s < sides.size(); ++s)
      if (call >= sides[s].size() || !sides[s][call]) return Obstacle{p.match, static_cast<std::int32_t>(s), p.call};
  }
  return std::nullopt;
}

bool TokenRun::absent(const Obstacle& who) const {
  const auto& side = posted_[static_cast<std::size_t>(who.match)][static_cast<std::size_t>(who.side)];
  const auto call = static_cast<std::size_t>(who.call);
  return call >= side.size() || !side[call];
}

std::optional<TokenRun::Obstacle> TokenRun::obstacle(RoleId role, StepPosition position) const {
  const RoleTokens& tokens = roles_[static_cast<std::size_t>(role)];
  if (from_copy(tokens.kind(position))) {
    const StreamId stream = tokens.op(position).stream;
    return missing(slots_[static_cast<std::size_t>(role)][static_cast<std::size_t>(stream)].front());
  }
  std::vector<Post> posts;
  tokens.posts(position, posts);
  return missing(posts);
}

}  // namespace rehearse::program
