// What a result says of the collectives of the step reported: which there were, how they went, and how long they took.
#pragma once

#include "sim/engine/engine.h"
#include "sim/engine/matching.h"

namespace rehearse::engine {

// Fills outcome.collectives: calls of one group, kind and size that went the same way are one entry, whichever instance
// of the group made them; the longest in all first.
void describe_collectives(const Matching& matching, Outcome& outcome);

}  // namespace rehearse::engine
