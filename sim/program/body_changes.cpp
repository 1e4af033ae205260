// See body_changes.h.
#include "sim/program/body_changes.h"

#include <algorithm>

namespace rehearse::program {

BodyChanges changes_of(const Role& role, const Body& body) {
  BodyChanges result;
  const auto add = [&](std::int32_t op, bool release, const Operand& operand) {
    BufferId id = operand.buffer;
    if (const BufferId base = role.buffers[static_cast<std::size_t>(id)].base; base >= 0) id = base;
    const Lifetime lifetime = role.buffers[static_cast<std::size_t>(id)].lifetime;
    if (lifetime == Lifetime::persistent) return;
    int domain = lifetime == Lifetime::slot ? 0 : 1;
    if (lifetime == Lifetime::micro_batch) {
      const auto known = std::find(result.deltas.begin(), result.deltas.end(), operand.micro_batch_delta);
      domain = 2 + static_cast<int>(known - result.deltas.begin());
      if (known == result.deltas.end()) result.deltas.push_back(operand.micro_batch_delta);
    }
    result.changes.push_back({op, release, domain, id});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(body.ops.size()); ++i) {
    const Op& op = body.ops[static_cast<std::size_t>(i)];
    for (const Operand& w : op.writes) add(i, false, w);
    for (const Operand& r : op.releases) add(i, true, r);
  }
  return result;
}

}  // namespace rehearse::program
