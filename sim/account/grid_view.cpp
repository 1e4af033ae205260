// See grid_view.h.
#include "sim/account/grid_view.h"

#include "sim/base/check.h"

namespace rehearse::account {

program::GridView grid_view(const program::Program& program, const plan::RankGrid& grid) {
  std::vector<program::RoleId> role_at(static_cast<std::size_t>(grid.size(Axis::pipeline)), -1);
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    if (const int at = program.roles[r].pipeline; at >= 0 && at < grid.size(Axis::pipeline))
      role_at[static_cast<std::size_t>(at)] = static_cast<program::RoleId>(r);
  program::GridView view;
  view.ranks = grid.ranks();
  view.role = [&grid, role_at](int rank) {
    const int stage = grid.coordinate(rank, Axis::pipeline);
    const program::RoleId role = role_at[static_cast<std::size_t>(stage)];
    REHEARSE_CHECK(role >= 0, "no role for rank {} (stage {})", rank, stage);
    return role;
  };
  view.size = [&grid](Axis axis) { return grid.size(axis); };
  view.members = [&grid](int rank, const program::Group& g) { return grid.members(rank, g.axes, g.pipeline_only); };
  view.peer = [&grid](int rank, Axis axis, int offset) { return grid.peer(rank, axis, offset); };
  return view;
}

}  // namespace rehearse::account
