// Ranks that meet no others while rounds of micro-batches go on: a pipeline, or several that are connected by what
// their rounds do. Replicas whose gradients are summed behind the rounds are parts of their own.
#pragma once

#include <vector>

#include "sim/engine/ids.h"
#include "sim/engine/matching.h"
#include "sim/engine/simulator/ranks.h"

namespace rehearse::engine {

struct RoundParts {
  IdVector<RankId, PartId> of_rank;
  std::vector<std::vector<RankId>> ranks;  // by part
};

// By the process groups of transfers in bodies that run often in a step; not `apart`: all ranks are one part. Tells
// `matching` whose each process group is.
RoundParts parts_of_rounds(const Ranks& ranks, Matching& matching, bool apart);

// Calls function(sequence) for every one that a segment posts in.
template <class Function>
void for_sequences(const RoleCode& code, const Segment& segment, Function&& function) {
  if (segment.kind == SegmentKind::collective) function(segment.sequence);
  if (segment.kind != SegmentKind::point_to_point) return;
  for (const LegId leg : segment.legs) function(code.legs[leg].sequence);
}

}  // namespace rehearse::engine
