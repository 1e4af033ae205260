// The ops that copy a micro-batch's training examples to the device, on a stream of their own. Where the scenario says
// what loading them takes (plan::Data), it is called `input`, and waits for it are so; the first op of a micro-batch
// takes it from the rank's loader, the others (targets, on the last stage too) copy what belongs to it.
#pragma once

#include "sim/lower/model/unit.h"

namespace rehearse::lower {

// Copies what `kind` names of the next micro-batch into `to`. `first`: of the ops that do. `ahead`: of
// Input.
void load_input(const UnitScope& scope, const std::string& name, program::InputKind kind, DType dtype, BufferId to,
                bool first = true, std::int64_t ahead = 0);

}  // namespace rehearse::lower
