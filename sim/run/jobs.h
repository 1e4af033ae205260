// Several jobs on one cluster: how long the steps of each take alongside the others, and alone.
#pragma once

#include <vector>

#include "sim/engine/engine.h"
#include "sim/result/result.h"
#include "sim/run/prepared.h"
#include "sim/run/study.h"

namespace rehearse::run {

// `outcome`: of a simulation of all jobs with these options. Each is simulated alone for as many steps, with the same
// draws of noise; the same steps of the two are compared, so that jobs that share nothing are slowed by exactly 1. The
// scenario's own job is the first; empty if it is the only one.
std::vector<result::JobResult> compare_jobs(const Prepared& prepared, const plan::Scenario& scenario,
                                            const engine::Options& options, const engine::Outcome& outcome, int threads,
                                            SharedProgress& progress);

}  // namespace rehearse::run
