// Collectives over a Wire, as rings, which is what the simulator prices: in a reduce-scatter a chunk goes round once
// while every rank adds its own, in an all-gather once while every rank keeps it; an all-reduce is one after the other,
// each moving (n - 1) / n of the elements (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Long chunks go in
// segments, passed on as they come. A broadcast is a chain from the first member, an all-to-all is direct; so is what
// is too short for a ring to be worth its n - 1 latencies. Sums are added in an order that depends on group and size
// alone.
#pragma once

#include <memory>

#include "execute/processes/status_board.h"
#include "execute/transport/communicator.h"
#include "execute/transport/wire.h"

namespace rehearse::execute {

// Of the wire's own rank; both must outlive it. Calls return when the last participant had come, as the board knows it;
// of ranks on other machines, whose clocks are not ours, nothing is known, and then it is when our own part began.
std::unique_ptr<Communicator> make_gloo_communicator(Wire& wire, Board& board);

// Lane 0 is for messages and control, the others for groups.
inline constexpr int kControlLane = 0;

// Tags are made of these parts and differ wherever two transfers between the same ranks may be under way at once.
enum class TagKind : std::uint64_t { collective = 1, message = 2, loss = 3, control = 4 };
std::uint64_t make_tag(TagKind kind, std::int64_t queue, std::int64_t sequence, std::int64_t step = 0,
                       std::int64_t segment = 0);

}  // namespace rehearse::execute
