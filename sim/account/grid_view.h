// A plan's grid of ranks as sim/program sees it.
#pragma once

#include "sim/plan/rank_grid.h"
#include "sim/program/link/grid_view.h"

namespace rehearse::account {

// Every rank must have a role. The grid must outlive the view.
program::GridView grid_view(const program::Program& program, const plan::RankGrid& grid);

}  // namespace rehearse::account
