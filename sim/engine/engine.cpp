// The flow of a simulation: the program is laid out as flat tables (code.h), ranks are connected to their groups and
// peers (matching.h), and the clock runs (simulator.h) with kernels timed by kernel_times.h under interference.h, bytes
// moved by network.h with shares from max_min.h, and the last step's time explained by breakdown.h.
#include "sim/engine/engine.h"

#include "sim/engine/simulator.h"

namespace rehearse::engine {

Outcome simulate(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                 const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options) {
  Simulator simulator(program, grid, cluster, collectives, costs, options);
  return simulator.run();
}

}  // namespace rehearse::engine
