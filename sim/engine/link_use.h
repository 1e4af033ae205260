// The busiest links of the step reported: which, how much, whose, and when. Bytes are exact: those of every transfer
// that ended in the step, as its plan puts them on each link (collective.h). Times are of bytes moving; inside a
// transfer they are taken to move evenly.
#pragma once

#include "sim/engine/engine.h"
#include "sim/engine/matching.h"
#include "sim/engine/network.h"

namespace rehearse::engine {

// Fills outcome.links and outcome.link_bytes from the network's log; the step is (from, to].
void describe_links(const Network& network, const Matching& matching, const cluster::Cluster& cluster, Time from,
                    Time to, Outcome& outcome);

}  // namespace rehearse::engine
