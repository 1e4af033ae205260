// What a step takes in energy (sim/cost/power.h), counted from the program: a kernel's energy does not depend on when
// it runs. The simulation adds how long the step took and what its transfers moved.
#pragma once

#include "sim/engine/engine.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"
#include "sim/result/result.h"
#include "sim/run/prepared.h"

namespace rehearse::run {

// Not known for a device whose file has no `power`. Where the mean power at the highest clock is above the limit, the
// voltage is that of the clock at which it is not; step times take no part in that (docs/calibration.md, "Power and
// energy").
result::Energy energy_of(const program::Program& program, const plan::RankGrid& grid, const cost::Device& device,
                         const engine::Outcome& outcome);
// Of each of the devices its own, in a cluster of several kinds; what transfers moved is shared evenly among ranks. The
// limit is then the mean of all, the clock the lowest. Not known where it is of one of them.
result::Energy energy_of(const Prepared& prepared, const engine::Outcome& outcome);

}  // namespace rehearse::run
