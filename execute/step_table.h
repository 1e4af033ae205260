// steps.csv of a measured run: each step of each rank, and where its compute stream's time went, for plots of loss
// against time, of how steps scatter, and of which rank is the straggler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execute/measure.h"

namespace rehearse::execute {

// A row a step and rank, in this order, after one with the names: `step` (of the training, from 1), `rank`, `loss` (of
// the step; the same for all its ranks), `end_s` (from the run's first step on, by the rank's own steps added up),
// `step_s`, and a share's seconds under the names of breakdown_s, which add up to step_s. `shares` are of the steps
// from `first_step` (0: the training's first) on, `losses` of all. Seconds have 12 digits behind the point: a
// picosecond.
std::string step_table(const StepShares& shares, std::int64_t first_step, const std::vector<double>& losses);

}  // namespace rehearse::execute
