// A plan with parameter servers, simulated: the iteration of each worker by the engine, as the program of a rank that
// hears of no other; what its kernels take then goes round between pulls and pushes
// (sim/engine/parameter_servers.h).
#pragma once

#include <vector>

#include "sim/account/server_events.h"
#include "sim/engine/engine.h"
#include "sim/engine/parameter_servers.h"
#include "sim/plan/scenario.h"
#include "sim/result/result.h"
#include "sim/run/prepared.h"

namespace rehearse::run {

// Iterations that are simulated of each worker, if no more are asked for: the mean of as many draws of noise.
inline constexpr int kServedIterations = 50;
int served_iterations(const Options& options);

// Of the workers' program alone, so many iterations of it, or, if they are all alike, fewer.
engine::Outcome simulate_workers(const Prepared& prepared, engine::Options options, int iterations);
// `sample` of the messages' noise; that of the workers' is their simulation's.
engine::ServedRun run_servers(const Prepared& prepared, const engine::Outcome& workers, int iterations,
                              std::int64_t sample = 0);
// Into a result that has the workers' outcome already.
void add_servers(const Prepared& prepared, const engine::Outcome& workers, const engine::ServedRun& run,
                 result::Result& out);

// When each worker's iterations ended, as Result::step_ends_ps has steps of ranks.
void add_iteration_ends(const engine::ServedRun& run, result::Result& out);

// What each server does, where each worker performs exactly so many iterations. Throws as simulate_scenario() does.
std::vector<account::ServerEvent> simulated_server_order(const plan::Scenario& scenario, const Options& options,
                                                         int iterations);

}  // namespace rehearse::run
