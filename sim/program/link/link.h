// The linker: what both interpreters and the static check must agree on about a program, derived once for each role.
//   instances.h       which instance of a buffer an operand means
//   calls.h           which call of a process group or a channel each transfer is
//   waits.h           which record each wait for an event refers to
//   blame.h           what a wait for an op is blamed on
//   process_groups.h  whose calls match
//   matches.h         the same role by role, for untimed executions
//   lifetimes.h       which buffers ever live at the same time
//   repetition.h      where slots repeat, so that walks over a step can leave rounds out
//   places.h          where buffers lie in an arena, and what ops wait for before they write there again
//   reuse_lag.h       what reusing a place at once would cost in overlap
//   reuse_order.h     in which slot the op runs that a wait for memory refers to
//   timeline.h        a step in an arena, op by op, with all waits
//   token_run.h       an untimed execution of all ranks
//   send_slots.h      how many sends must be made from copies for such steps to go on
#pragma once

#include <vector>

#include "sim/program/link/calls.h"
#include "sim/program/link/process_groups.h"
#include "sim/program/link/waits.h"

namespace rehearse::program {

struct Link {
  std::vector<RoleCalls> calls;  // by role
  std::vector<RoleWaits> waits;  // by role
  ProcessGroups groups;
};

Link link(const Program& program, const GridView& grid);

}  // namespace rehearse::program
