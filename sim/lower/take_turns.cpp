// Bodies of micro-batches that do the same with other sizes (RoleBuilder::take_turns): where experts' loads differ
// between micro-batches, a stage is lowered once for each load, and its role has the bodies of all of them. Buffers
// have room for the largest load; each load has views of its rows.
#include <fmt/format.h>

#include <map>
#include <set>

#include "sim/base/check.h"
#include "sim/lower/role_builder.h"

namespace rehearse::lower {

using program::Buffer;
using program::Op;
using program::Slot;

// The other's ops of `body`; views that are of another size are made here.
std::vector<Op> RoleBuilder::ops_with_own_views(const RoleBuilder& other, BodyId body) {
  std::vector<Op> ops = other.role_.bodies[static_cast<std::size_t>(body)].ops;
  REHEARSE_CHECK(ops.size() == role_.bodies[static_cast<std::size_t>(body)].ops.size(), "body {} has other ops", body);
  const auto own = [&](BufferId id) {
    const Buffer& here = buffer(id);
    const Buffer& there = other.buffer(id);
    REHEARSE_CHECK(here.name == there.name, "{} and {} are not the same buffer", here.name, there.name);
    if (here.shape == there.shape) return id;
    REHEARSE_CHECK(here.is_view() && here.base == there.base && here.offset == there.offset,
                   "{} has another size in other micro-batches", here.name);
    const std::string name = fmt::format("{}.rows{}", here.name, there.shape.front());
    const auto known = buffer_ids_.find(name);
    return known != buffer_ids_.end() ? known->second : view(name, there.base, there.offset, there.shape);
  };
  for (Op& op : ops)
    for (auto* operands : {&op.reads, &op.writes})
      for (Operand& operand : *operands) operand.buffer = own(operand.buffer);
  return ops;
}

// What was ordered by hand is so in each turn. What waits for an op that its own turn does not have waits for those of
// all turns: of these the latest before it counts.
void RoleBuilder::order_turns(const std::map<std::pair<std::size_t, BodyId>, BodyId>& made, std::size_t turns) {
  std::set<BodyId> taking;
  for (const auto& [key, body] : made) taking.insert(key.second);
  const auto of_turn = [&](std::size_t turn, OpRef op) {
    if (!taking.contains(op.body)) return op;
    const auto it = made.find({turn, op.body});
    return it == made.end() ? OpRef{} : OpRef{it->second, op.op};
  };
  std::set<std::pair<OpRef, OpRef>> orderings;
  for (const auto& [op, earlier] : after_)
    for (std::size_t turn = 0; turn < turns; ++turn) {
      const OpRef waiting = of_turn(turn, op), own = of_turn(turn, earlier);
      if (!waiting.valid()) continue;
      if (own.valid()) {
        orderings.emplace(waiting, own);
        continue;
      }
      for (std::size_t other = 0; other < turns; ++other)
        if (const OpRef last = of_turn(other, earlier); last.valid()) orderings.emplace(waiting, last);
    }
  after_.assign(orderings.begin(), orderings.end());
  std::set<OpRef> after_compute;
  for (const OpRef op : after_compute_)
    for (std::size_t turn = 0; turn < turns; ++turn)
      if (const OpRef own = of_turn(turn, op); own.valid()) after_compute.insert(own);
  after_compute_.assign(after_compute.begin(), after_compute.end());
}

void RoleBuilder::take_turns(const std::vector<const RoleBuilder*>& others, std::vector<Slot>& slots) {
  const std::size_t turns = 1 + others.size();
  const auto turn_of = [&](const Slot& slot) { return static_cast<std::size_t>(slot.micro_batch) % turns; };
  std::map<std::pair<std::size_t, BodyId>, BodyId> made;  // by turn and this builder's body
  std::set<BodyId> kept;
  for (const Slot& slot : slots)
    if (slot.micro_batch >= 0 && turn_of(slot) == 0) {
      made[{0, slot.body}] = slot.body;
      kept.insert(slot.body);
    }
  for (Slot& slot : slots) {
    if (slot.micro_batch < 0) continue;
    const auto [it, is_new] = made.try_emplace({turn_of(slot), slot.body}, slot.body);
    if (is_new) {
      std::vector<Op> ops = ops_with_own_views(*others[turn_of(slot) - 1], slot.body);
      // A body that no micro-batch of the first turn has makes way for the first that another has.
      if (kept.insert(slot.body).second)
        body_ = slot.body;
      else
        it->second =
            begin_body(fmt::format("{}.load{}", role_.bodies[static_cast<std::size_t>(slot.body)].name, turn_of(slot)));
      role_.bodies[static_cast<std::size_t>(body_)].ops = std::move(ops);
      note_last_compute();
    }
    slot.body = it->second;
  }
  order_turns(made, turns);
}

}  // namespace rehearse::lower
