// The checks of all ranks together: first whether what they call matches (crossed collectives, missing and mismatched
// sends and receives), over the calls of one step, as every step is the same but for bodies that are not run in all
// (Body::every), whose calls must be so on every side; then, if every call has its counterpart,
// whether an execution gets through (check_deadlock.cpp). A missing counterpart would stop that execution anyway, so it
// is not run and reported a second time.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/interrupt.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"

namespace rehearse::program {
namespace {

class CallCheck {
 public:
  CallCheck(const Program& program, const Transfers& transfers, std::vector<Violation>& violations)
      : program_(program), transfers_(transfers), violations_(violations) {}

  // False if some call has no counterpart.
  bool run() {
    for (const Match& m : transfers_.matches.matches) {
      if (m.group >= 0) {
        for (std::size_t s = 1; s < m.sides.size(); ++s) compare_collectives(m, m.sides[0], m.sides[s]);
      } else {
        compare_legs(m);
      }
    }
    return complete_;
  }

 private:
  const std::vector<CallPlace>& calls(const MatchSide& side) const { return transfers_.calls_of(side); }
  const Role& role(const MatchSide& side) const { return program_.roles[static_cast<std::size_t>(side.role)]; }
  const Op& op(const MatchSide& side, const CallPlace& call) const {
    const Slot& slot = role(side).slots[static_cast<std::size_t>(call.slot)];
    return role(side).bodies[static_cast<std::size_t>(slot.body)].ops[static_cast<std::size_t>(call.op)];
  }
  // In which steps it calls: Body::every.
  std::int64_t every(const MatchSide& side, const CallPlace& call) const {
    const Slot& slot = role(side).slots[static_cast<std::size_t>(call.slot)];
    return role(side).bodies[static_cast<std::size_t>(slot.body)].every;
  }
  std::int64_t elements(const MatchSide& side, const CallPlace& call) const {
    const OpShape& shape = op(side, call).shape;
    if (call.leg < 0) return std::get<Collective>(shape).elements;
    return std::get<PointToPoint>(shape).legs[static_cast<std::size_t>(call.leg)].elements;
  }
  std::string place(const MatchSide& side, const CallPlace& call) const {
    return place_text(role(side), call.slot, call.op);
  }
  std::string who(const MatchSide& side) const { return rank_text(role(side), side.rank); }

  std::string call_text(const MatchSide& side, std::size_t k) const {
    if (k >= calls(side).size()) return fmt::format("{} makes only {} calls in a step", who(side), calls(side).size());
    const CallPlace& call = calls(side)[k];
    const Op& o = op(side, call);
    const std::int64_t steps = every(side, call);
    return fmt::format("{} calls {} {} of {} {}{}{}", who(side), kind_name(o.shape), place(side, call),
                       elements(side, call), name_of(o.dtype),
                       std::get<Collective>(o.shape).reduce == ReduceOp::max ? " (max)" : "",
                       steps > 1 ? fmt::format(" every {} steps", steps) : "");
  }

  bool same(const MatchSide& a, const MatchSide& b, std::size_t k) const {
    const Op& x = op(a, calls(a)[k]);
    const Op& y = op(b, calls(b)[k]);
    const auto& cx = std::get<Collective>(x.shape);
    const auto& cy = std::get<Collective>(y.shape);
    const bool reduces = cx.kind == CollectiveKind::all_reduce || cx.kind == CollectiveKind::reduce_scatter;
    return every(a, calls(a)[k]) == every(b, calls(b)[k]) && x.from_step == y.from_step &&
           x.until_step == y.until_step && cx.kind == cy.kind && cx.elements == cy.elements && cx.parts == cy.parts &&
           cx.back == cy.back && cx.to == cy.to && x.dtype == y.dtype && (!reduces || cx.reduce == cy.reduce);
  }

  void compare_collectives(const Match& m, const MatchSide& a, const MatchSide& b) {
    const std::size_t common = std::min(calls(a).size(), calls(b).size());
    std::size_t k = 0;
    for (; k < common && same(a, b, k); ++k) check_interrupt();
    if (calls(a).size() != calls(b).size()) complete_ = false;
    if (k == common && calls(a).size() == calls(b).size()) return;
    std::string members = fmt::format("{}", fmt::join(m.members.begin(), m.members.begin() + shown(m), ","));
    if (m.members.size() > kShownMembers) members += fmt::format(",... {} ranks", m.members.size());
    violations_.push_back({"crossed-collectives", fmt::format("call {} on group {} {{{}}}: {} where {}", k,
                                                              program_.groups[static_cast<std::size_t>(m.group)].name,
                                                              members, call_text(a, k), call_text(b, k))});
  }

  void compare_legs(const Match& m) {
    const MatchSide& sender = m.sides[0];
    const MatchSide& receiver = m.sides[1];
    const std::size_t common = std::min(calls(sender).size(), calls(receiver).size());
    for (std::size_t k = 0; k < common; ++k) {
      check_interrupt();
      const CallPlace& s = calls(sender)[k];
      const CallPlace& r = calls(receiver)[k];
      const DType sent = op(sender, s).dtype;
      const DType received = op(receiver, r).dtype;
      const bool together = every(sender, s) == every(receiver, r);
      if (elements(sender, s) == elements(receiver, r) && sent == received && together) continue;
      violations_.push_back(
          {"size-mismatch",
           fmt::format("{} sends {} {} in {} where {} receives {} {} in {} (channel {}, message {})", who(sender),
                       elements(sender, s), name_of(sent), place(sender, s), who(receiver), elements(receiver, r),
                       name_of(received), place(receiver, r), m.channel, k)});
      break;
    }
    if (calls(sender).size() == calls(receiver).size()) return;
    complete_ = false;
    const bool receive_missing = calls(sender).size() > calls(receiver).size();
    const MatchSide& lonely = receive_missing ? sender : receiver;
    violations_.push_back(
        {receive_missing ? "missing-receive" : "missing-send",
         fmt::format("{} sends {} times a step to {} on channel {}, which receives {} times: {} has no {}", who(sender),
                     calls(sender).size(), who(receiver), m.channel, calls(receiver).size(),
                     place(lonely, calls(lonely)[common]), receive_missing ? "receive" : "send")});
  }

  static constexpr std::size_t kShownMembers = 16;
  static std::ptrdiff_t shown(const Match& m) {
    return static_cast<std::ptrdiff_t>(std::min(m.members.size(), kShownMembers));
  }

  const Program& program_;
  const Transfers& transfers_;
  std::vector<Violation>& violations_;
  bool complete_ = true;
};

// The shard of an all-gather's input or a reduce-scatter's output is the whole divided by the group.
void check_shards(const Program& program, RoleId role_id, const RoleMatches& matches, const GridView& grid,
                  ViolationList& list) {
  const Role& role = program.roles[static_cast<std::size_t>(role_id)];
  const int rank = matches.representative[static_cast<std::size_t>(role_id)];
  std::map<GroupId, std::int64_t> sizes;
  for (BodyId b = 0; b < static_cast<BodyId>(role.bodies.size()); ++b) {
    const Body& body = role.bodies[static_cast<std::size_t>(b)];
    for (int i = 0; i < static_cast<int>(body.ops.size()); ++i) {
      const Op& op = body.ops[static_cast<std::size_t>(i)];
      const auto* c = std::get_if<Collective>(&op.shape);
      if (c == nullptr) continue;
      const bool gathers = c->kind == CollectiveKind::all_gather;
      if (!gathers && c->kind != CollectiveKind::reduce_scatter) continue;
      const auto& operands = gathers ? op.reads : op.writes;
      if (operands.size() != 1) continue;  // check_operands says so
      const Group& group = program.groups[static_cast<std::size_t>(c->group)];
      const auto [it, added] = sizes.emplace(c->group, 0);
      if (added) it->second = static_cast<std::int64_t>(grid.members(rank, group).size());
      const Buffer& shard = role.buffers[static_cast<std::size_t>(operands[0].buffer)];
      if (shard.elements() * it->second == c->elements) continue;
      if (std::string* text = list.add("bad-operands", b, i))
        *text =
            fmt::format("{}: {} '{}' of body {} {} '{}' with {} elements; it is {} over the {} ranks of group {}",
                        rank_text(role, rank), kind_name(op.shape), op.name, body.name, gathers ? "reads" : "writes",
                        shard.name, shard.elements(), c->elements, it->second, group.name);
    }
  }
}

Transfers transfers_of(const Program& program, const GridView& grid) {
  Transfers transfers;
  for (const Role& role : program.roles) {
    const RoleCalls& calls = transfers.calls.emplace_back(number_calls(role, grid.size));
    auto& places = transfers.places.emplace_back(calls.sequences.size());
    std::vector<std::vector<int>> posting(role.bodies.size());  // by body: ops with calls
    for (std::size_t b = 0; b < role.bodies.size(); ++b)
      for (int i = 0; i < static_cast<int>(role.bodies[b].ops.size()); ++i)
        if (!calls.of(static_cast<BodyId>(b), i).empty()) posting[b].push_back(i);
    for (int s = 0; s < static_cast<int>(role.slots.size()); ++s) {
      check_interrupt();
      const BodyId body = role.slots[static_cast<std::size_t>(s)].body;
      const std::vector<Op>& ops = role.bodies[static_cast<std::size_t>(body)].ops;
      for (const int i : posting[static_cast<std::size_t>(body)]) {
        const bool collective = std::holds_alternative<Collective>(ops[static_cast<std::size_t>(i)].shape);
        int leg = 0;
        for (const TransferCall& call : calls.of(body, i))
          places[static_cast<std::size_t>(call.sequence)].push_back({s, i, collective ? -1 : leg++});
      }
    }
  }
  transfers.matches = match_roles(program, transfers.calls, grid);
  return transfers;
}

void report_outsiders(const Program& program, const Transfers& transfers, const GridView& grid,
                      std::vector<Violation>& violations) {
  for (const auto& [r, sequence] : transfers.matches.outside) {
    const Role& role = program.roles[static_cast<std::size_t>(r)];
    const int rank = transfers.matches.representative[static_cast<std::size_t>(r)];
    const CallPlace& first = transfers.places[static_cast<std::size_t>(r)][static_cast<std::size_t>(sequence)].front();
    const BodyId body = role.slots[static_cast<std::size_t>(first.slot)].body;
    const Op& op = role.bodies[static_cast<std::size_t>(body)].ops[static_cast<std::size_t>(first.op)];
    const Group& group = program.groups[static_cast<std::size_t>(std::get<Collective>(op.shape).group)];
    violations.push_back(
        {"bad-reference", fmt::format("{} calls '{}' on group {} {{{}}}, which it is not in", rank_text(role, rank),
                                      op.name, group.name, fmt::join(grid.members(rank, group), ","))});
  }
}

}  // namespace

std::vector<Violation> check_ranks(const Program& program, const GridView& grid, bool execute) {
  std::vector<Violation> violations;
  ViolationList list;
  for (RoleId r = 0; r < static_cast<RoleId>(program.roles.size()); ++r) {
    check_references(program, r, list);
    for (Violation& v : list.take()) violations.push_back(std::move(v));
  }
  if (!violations.empty()) return violations;  // nothing else can be looked up
  const Transfers transfers = transfers_of(program, grid);
  report_outsiders(program, transfers, grid, violations);
  for (RoleId r = 0; r < static_cast<RoleId>(program.roles.size()); ++r) {
    check_shards(program, r, transfers.matches, grid, list);
    for (Violation& v : list.take()) violations.push_back(std::move(v));
  }
  if (CallCheck(program, transfers, violations).run() && execute) check_deadlock(program, transfers, {}, 0, violations);
  return violations;
}

std::vector<Violation> check_memory_reuse(const Program& program, const GridView& grid,
                                          const std::vector<const ArenaPlaces*>& places, int send_slots) {
  std::vector<Violation> violations;
  check_deadlock(program, transfers_of(program, grid), places, send_slots, violations);
  return violations;
}

}  // namespace rehearse::program
