// A role's step as it is performed (sim/program/link/timeline.h), of a plan's grid.
#pragma once

#include <vector>

#include "sim/base/check.h"
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

// Of the rank's role; timelines are by role.
inline const Timeline& timeline_of(const std::vector<Timeline>& timelines, const plan::RankGrid& grid, int rank) {
  const Coordinates at = grid.coordinates(rank);
  for (const Timeline& timeline : timelines)
    if (timeline.role != nullptr && timeline.role->ranks.contains(at)) return timeline;  // null: not asked for
  REHEARSE_CHECK(false, "rank {} has no role", rank);
}

}  // namespace rehearse::execute
