// The least energy that a step of a plan can take, without simulating it: what its kernels take whenever they run
// (sim/run/energy.h), and what the devices draw meanwhile in the least time of a step. Leaves out what transfers move.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/lower/lower.h"
#include "sim/run/energy.h"
#include "sim/run/prepared.h"

namespace rehearse::search {

// Whether kernels count: devices are of one kind, and ranks of a stage have the same kernels. Experts may have unlike
// numbers of rows.
bool counts_kernels(const plan::Scenario& scenario, const run::Machine& machine);

// Of all ranks in a step; 0 where they do not count, or documents differ.
run::KernelJoules kernel_joules(const lower::DistinctStages& stages, const plan::Scenario& scenario,
                                const run::Machine& machine);

// Of a step that takes `step` or longer, with these kernels.
double least_energy(const run::Machine& machine, Time step, std::int64_t gpus, const run::KernelJoules& kernels);

}  // namespace rehearse::search
