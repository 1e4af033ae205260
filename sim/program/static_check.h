// What must hold before a program is simulated or performed. Violations are values that name ranks and ops.
//
// One rank at a time: every wait is for an event some op of the role records; no buffer instance is read before it is
// written, or touched after it is released or before it exists; conflicting accesses (one of them a write) on different
// streams are ordered by events; operand counts and sizes fit the op's kind.
// All ranks together: the members of a group call the same collectives (kind, elements, dtype) in the same order; every
// send has its receive of the same size; an untimed token execution of every rank's streams runs to the end with
// rendezvous transfers, so no rank waits for another in a circle (link/token_run.h); and, where ranks' memory is an
// arena, another with the waits for its reuse.
#pragma once

#include <string>
#include <vector>

#include "sim/program/link/grid_view.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/program.h"

namespace rehearse::program {

struct Violation {
  std::string rule;  // "missing-receive", "crossed-collectives", "use-after-free", "unrecorded-event", "deadlock", ...
  std::string message;  // names ranks, ops, buffers
};

std::vector<Violation> check_role(const Program& program, RoleId role);
// `execute`: that they get through is found out too, by a token execution. Not needed where they get through even with
// waits for memory and sends that wait for their receivers (Arenas::drains, without send slots): fewer waits hold up
// less.
std::vector<Violation> check_ranks(const Program& program, const GridView& grid, bool execute = true);
// "reuse-deadlock": ranks whose memory is an arena wait for one another in a circle because of what they write where
// memory is still in use. Of a program that breaks no other rule. `places` by role; `send_slots` as in Arenas.
std::vector<Violation> check_memory_reuse(const Program& program, const GridView& grid,
                                          const std::vector<const ArenaPlaces*>& places, int send_slots);

}  // namespace rehearse::program
