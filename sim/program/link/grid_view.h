// The grid of ranks as the linker and the static check see it: this folder knows no plan (sim/account/grid_view.h makes
// one of a plan's).
#pragma once

#include <functional>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

struct GridView {
  int ranks = 0;
  std::function<RoleId(int rank)> role;
  std::function<int(Axis axis)> size;
  // Ranks of the group as seen from a rank, in group order.
  std::function<std::vector<int>(int rank, const Group& group)> members;
  // The rank `offset` further on the axis, wrapping around.
  std::function<int(int rank, Axis axis, int offset)> peer;
};

}  // namespace rehearse::program
