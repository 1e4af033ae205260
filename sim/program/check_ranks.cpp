// The checks of all ranks together: first whether what they call matches (crossed collectives, missing and mismatched
// sends and receives), over the calls of one step, as every step is the same; then, if every call has its counterpart,
// whether an execution gets through (check_deadlock.cpp). A missing counterpart would stop that execution anyway, so it
// is not run and reported a second time.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/interrupt.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"
#include "sim/program/rendezvous.h"

namespace rehearse::program {
namespace {

class CallCheck {
 public:
  CallCheck(const Program& program, const Rendezvous& rendezvous, std::vector<Violation>& violations)
      : program_(program), rendezvous_(rendezvous), violations_(violations) {}

  // False if some call has no counterpart.
  bool run() {
    for (const Meeting& m : rendezvous_.meetings) {
      if (m.collective) {
        for (std::size_t s = 1; s < m.sides.size(); ++s) compare_collectives(m, m.sides[0], m.sides[s]);
      } else {
        compare_legs(m);
      }
    }
    return complete_;
  }

 private:
  const Role& role(const Side& side) const { return program_.roles[static_cast<std::size_t>(side.role)]; }
  const Op& op(const Side& side, const Call& call) const {
    const Slot& slot = role(side).slots[static_cast<std::size_t>(call.slot)];
    return role(side).bodies[static_cast<std::size_t>(slot.body)].ops[static_cast<std::size_t>(call.op)];
  }
  std::int64_t elements(const Side& side, const Call& call) const {
    const OpShape& shape = op(side, call).shape;
    if (call.leg < 0) return std::get<Collective>(shape).elements;
    return std::get<PointToPoint>(shape).legs[static_cast<std::size_t>(call.leg)].elements;
  }
  std::string place(const Side& side, const Call& call) const { return place_text(role(side), call.slot, call.op); }
  std::string who(const Side& side) const { return rank_text(role(side), side.rank); }

  std::string call_text(const Side& side, std::size_t k) const {
    if (k >= side.calls.size()) return fmt::format("{} makes only {} calls in a step", who(side), side.calls.size());
    const Call& call = side.calls[k];
    const Op& o = op(side, call);
    return fmt::format("{} calls {} {} of {} {}{}", who(side), kind_name(o.shape), place(side, call),
                       elements(side, call), name_of(o.dtype),
                       std::get<Collective>(o.shape).reduce == ReduceOp::max ? " (max)" : "");
  }

  bool same(const Side& a, const Side& b, std::size_t k) const {
    const Op& x = op(a, a.calls[k]);
    const Op& y = op(b, b.calls[k]);
    const auto& cx = std::get<Collective>(x.shape);
    const auto& cy = std::get<Collective>(y.shape);
    const bool reduces = cx.kind == CollectiveKind::all_reduce || cx.kind == CollectiveKind::reduce_scatter;
    return cx.kind == cy.kind && cx.elements == cy.elements && x.dtype == y.dtype &&
           (!reduces || cx.reduce == cy.reduce);
  }

  void compare_collectives(const Meeting& m, const Side& a, const Side& b) {
    const std::size_t common = std::min(a.calls.size(), b.calls.size());
    std::size_t k = 0;
    for (; k < common && same(a, b, k); ++k) check_interrupt();
    if (a.calls.size() != b.calls.size()) complete_ = false;
    if (k == common && a.calls.size() == b.calls.size()) return;
    std::string members = fmt::format("{}", fmt::join(m.members.begin(), m.members.begin() + shown(m), ","));
    if (m.members.size() > kShownMembers) members += fmt::format(",... {} ranks", m.members.size());
    violations_.push_back({"crossed-collectives", fmt::format("call {} on group {} {{{}}}: {} where {}", k,
                                                              program_.groups[static_cast<std::size_t>(m.group)].name,
                                                              members, call_text(a, k), call_text(b, k))});
  }

  void compare_legs(const Meeting& m) {
    const Side& sender = m.sides[0];
    const Side& receiver = m.sides[1];
    const std::size_t common = std::min(sender.calls.size(), receiver.calls.size());
    for (std::size_t k = 0; k < common; ++k) {
      check_interrupt();
      const Call& s = sender.calls[k];
      const Call& r = receiver.calls[k];
      const DType sent = op(sender, s).dtype;
      const DType received = op(receiver, r).dtype;
      if (elements(sender, s) == elements(receiver, r) && sent == received) continue;
      violations_.push_back(
          {"size-mismatch",
           fmt::format("{} sends {} {} in {} where {} receives {} {} in {} (channel {}, message {})", who(sender),
                       elements(sender, s), name_of(sent), place(sender, s), who(receiver), elements(receiver, r),
                       name_of(received), place(receiver, r), m.channel, k)});
      break;
    }
    if (sender.calls.size() == receiver.calls.size()) return;
    complete_ = false;
    const bool receive_missing = sender.calls.size() > receiver.calls.size();
    const Side& lonely = receive_missing ? sender : receiver;
    violations_.push_back(
        {receive_missing ? "missing-receive" : "missing-send",
         fmt::format("{} sends {} times a step to {} on channel {}, which receives {} times: {} has no {}", who(sender),
                     sender.calls.size(), who(receiver), m.channel, receiver.calls.size(),
                     place(lonely, lonely.calls[common]), receive_missing ? "receive" : "send")});
  }

  static constexpr std::size_t kShownMembers = 16;
  static std::ptrdiff_t shown(const Meeting& m) {
    return static_cast<std::ptrdiff_t>(std::min(m.members.size(), kShownMembers));
  }

  const Program& program_;
  const Rendezvous& rendezvous_;
  std::vector<Violation>& violations_;
  bool complete_ = true;
};

// The shard of an all-gather's input or a reduce-scatter's output is the whole divided by the group.
void check_shards(const Program& program, RoleId role_id, const Rendezvous& rendezvous, const GridView& grid,
                  ViolationList& list) {
  const Role& role = program.roles[static_cast<std::size_t>(role_id)];
  const int rank = rendezvous.representative[static_cast<std::size_t>(role_id)];
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

}  // namespace

std::vector<Violation> check_ranks(const Program& program, const GridView& grid) {
  std::vector<Violation> violations;
  ViolationList list;
  for (RoleId r = 0; r < static_cast<RoleId>(program.roles.size()); ++r) {
    check_references(program, r, list);
    for (Violation& v : list.take()) violations.push_back(std::move(v));
  }
  if (!violations.empty()) return violations;  // nothing else can be looked up
  const Rendezvous rendezvous = find_meetings(program, grid, violations);
  for (RoleId r = 0; r < static_cast<RoleId>(program.roles.size()); ++r) {
    check_shards(program, r, rendezvous, grid, list);
    for (Violation& v : list.take()) violations.push_back(std::move(v));
  }
  if (CallCheck(program, rendezvous, violations).run()) check_deadlock(program, rendezvous, violations);
  return violations;
}

}  // namespace rehearse::program
