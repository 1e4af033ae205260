// See grid_view.h.
#include "sim/account/grid_view.h"

#include <utility>
#include <vector>

#include "sim/base/check.h"

namespace rehearse::account {

program::GridView grid_view(const program::Program& program, const plan::RankGrid& grid) {
  std::vector<program::RoleId> roles;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    roles.push_back(program::role_of(program, grid.coordinates(rank)));
    REHEARSE_CHECK(roles.back() >= 0, "no role for rank {}", rank);
  }
  program::GridView view;
  view.ranks = grid.ranks();
  view.role = [roles = std::move(roles)](int rank) { return roles[static_cast<std::size_t>(rank)]; };
  view.size = [&grid](Axis axis) { return grid.size(axis); };
  view.members = [&grid](int rank, const program::Group& g) {
    return grid.members(rank, g.axes, g.pipeline_only, g.tensor_block);
  };
  view.peer = [&grid](int rank, Axis axis, int offset) { return grid.peer(rank, axis, offset); };
  return view;
}

}  // namespace rehearse::account
