// Times of what parameter servers do to their numbers (sim/account/server_kernels.h), of a scenario that has them: no
// rank's program has these kernels, so each is measured on its own.
#pragma once

#include <vector>

#include "calibrate/budget.h"
#include "calibrate/kernel_times.h"
#include "calibrate/profile_targets.h"

namespace rehearse::calibrate {

// Of all targets with servers, each key once, within `seconds` and the budget; the first in any case.
void measure_servers(const std::vector<Target>& targets, double seconds, const Budget& budget, KernelTimes& times);

}  // namespace rehearse::calibrate
