// Collectives over a Wire, as rings, which is what the simulator prices: in a reduce-scatter a chunk goes round once
// while every rank adds its own, in an all-gather once while every rank keeps it; an all-reduce is one after the other,
// each moving (n - 1) / n of the elements (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Long chunks go in
// segments, passed on as they come. A broadcast is a chain from the first member, an all-to-all is direct; so is what
// is too short for a ring to be worth its n - 1 latencies. Sums are added in an order that depends on group and size
// alone.
#pragma once

#include <memory>

#include "execute/transport/arrivals.h"
#include "execute/transport/communicator.h"
#include "execute/transport/wire.h"

namespace rehearse::execute {

// Of the wire's own rank; both must outlive it. Calls return when the last participant had come, as `arrivals` knows
// it; of ranks on other machines, whose clocks are not ours, nothing is known, and then it is when our own part began.
std::unique_ptr<Communicator> make_gloo_communicator(Wire& wire, Arrivals& arrivals);

}  // namespace rehearse::execute
