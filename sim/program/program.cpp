// Sizes of buffers: the product of their shape. A view has its own shape, so its own size, inside its base. Which ranks
// have which role.
#include "sim/program/program.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "sim/base/check.h"

namespace rehearse::program {

std::int64_t Buffer::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool RankSet::contains(const Coordinates& rank) const {
  for (std::size_t a = 0; a < only.size(); ++a)
    if (!only[a].empty() && std::find(only[a].begin(), only[a].end(), rank[a]) == only[a].end()) return false;
  return true;
}

Coordinates RankSet::first() const {
  Coordinates at{};
  for (std::size_t a = 0; a < only.size(); ++a)
    if (!only[a].empty()) at[a] = *std::min_element(only[a].begin(), only[a].end());
  return at;
}

RankSet RankSet::of_stage(int stage) {
  RankSet set;
  set.only[static_cast<std::size_t>(Axis::pipeline)] = {stage};
  return set;
}

RoleId role_of(const Program& program, const Coordinates& rank) {
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    if (program.roles[r].ranks.contains(rank)) return static_cast<RoleId>(r);
  REHEARSE_CHECK(false, "no role for a rank of stage {}", rank[static_cast<std::size_t>(Axis::pipeline)]);
}

std::int64_t steps_per_round(const Program& program) {
  std::int64_t steps = 1;
  for (const Role& role : program.roles)
    for (const Body& body : role.bodies) steps = std::max(steps, body.every);
  return steps;
}

Within within(const Role& role, const Op& op) {
  bool host = false, device = false;
  for (const auto* operands : {&op.reads, &op.writes})
    for (const Operand& o : *operands)
      (role.buffers[static_cast<std::size_t>(o.buffer)].on_host ? host : device) = true;
  return !host ? Within::device : device ? Within::between : Within::host;
}

}  // namespace rehearse::program
