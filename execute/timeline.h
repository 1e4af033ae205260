// A role's step as it is performed (sim/program/link/timeline.h), of a plan's grid.
#pragma once

#include "sim/plan/rank_grid.h"
#include "sim/program/link/timeline.h"

namespace rehearse::execute {

using program::kArenaAlignment;
using program::Timeline;
using Instance = program::OpInstance;
using Place = program::OperandPlace;
using Wait = program::StreamWait;

// `role` must outlive it.
inline Timeline make_timeline(const program::Role& role, const plan::RankGrid& grid) {
  return program::make_timeline(role, [&grid](Axis axis) { return grid.size(axis); });
}

}  // namespace rehearse::execute
