// What must hold of a program before it is performed (program/static_check.h): a broken rule would be a hang or a wrong
// number here.
#pragma once

#include <vector>

#include "execute/timeline.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"

namespace rehearse::execute {

// Throws InternalError.
void check_program(const program::Program& program, const plan::RankGrid& grid);
// The same of the waits for the reuse of memory. Returns program::Arenas's send_slots.
int check_memory_reuse(const program::Program& program, const plan::RankGrid& grid,
                       const std::vector<Timeline>& timelines, bool on_gpus);

}  // namespace rehearse::execute
