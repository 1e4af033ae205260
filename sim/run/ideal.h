// What the plan would take under the profile `rehearse`, one fused kernel an operation and everything overlapped: how
// far the framework that was chosen automatically is from the ideal.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/scenario.h"
#include "sim/run/run.h"

namespace rehearse::run {

// A second simulation, so only where it is cheap. Zero: the file names the framework, it is that one, the first
// simulation had more than 20 million ops (about half a second), went message by message, or was of samples of noise or
// of several jobs, which one step does not stand for. `assignments`: those the scenario was read with.
Time ideal_step(const plan::Scenario& scenario, const std::vector<std::string>& assignments, const Options& options,
                std::int64_t ops);

}  // namespace rehearse::run
