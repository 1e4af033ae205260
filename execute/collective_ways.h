// Which algorithm each kind of collective of a run goes by, as result::Result::collectives has it of a simulation.
#pragma once

#include "execute/rank/run.h"
#include "sim/result/result.h"

namespace rehearse::execute {

// Of all calls of a step, by group, kind and size. The time is the mean over the recorded ops of `out`, from when all
// members had come; 0 where none was recorded.
void add_collectives(const Run& run, result::Result& out);

}  // namespace rehearse::execute
