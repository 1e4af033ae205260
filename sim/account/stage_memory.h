// Memory of each stage of a lowered plan: the tensors' peak from the program (program/memory_plan.h), and what the
// framework holds beside them on an accelerator.
#pragma once

#include <vector>

#include "sim/plan/framework.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// `cpu`: the device is a CPU; frameworks reserve nothing there.
std::vector<result::StageMemory> stage_memory(const program::Program& program, const plan::FrameworkProfile& framework,
                                              bool cpu);

}  // namespace rehearse::account
