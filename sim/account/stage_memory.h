// Memory of each stage of a lowered plan: the tensors' peak from the program (program/memory_plan.h), and what the
// framework holds beside them on an accelerator.
#pragma once

#include <vector>

#include "sim/plan/framework.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/memory_plan.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// `cpu`: the device is a CPU; frameworks reserve nothing there, and messages are sent from no slots.
// `arenas`: of the program's ranks, if they are laid out already; nullptr: where ranks have arenas they are laid out
// here. `own`: what kernels take for themselves; empty where ranks have arenas.
std::vector<result::StageMemory> stage_memory(const program::Program& program, const plan::RankGrid& grid,
                                              const plan::FrameworkProfile& framework, bool cpu,
                                              const program::Arenas* arenas = nullptr,
                                              const program::OwnMemory& own = {});

}  // namespace rehearse::account
