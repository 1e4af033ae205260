// Performs a Program in simulated time. See engine.cpp for the flow. Deterministic: the same inputs give the same
// bytes.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/noise.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::engine {

struct Options {
  int steps = 2;                    // simulated; the last one is the steady step reported
  Time launch_cost;                 // host time an op
  std::vector<int> recorded_ranks;  // whose ops are recorded (of the last step)
  plan::Noise noise;
  std::int64_t sample = 0;  // of the noise's draws
  std::vector<int> spared;  // ranks that are not slow, whatever noise says
  std::function<void(double done)>
      progress;  // called now and then with the share of op instances done; may throw to stop
};

struct Outcome {
  Time step_time;               // of the last step
  std::vector<Time> step_ends;  // latest rank's end of each step; see Simulator::lanes_left_
  std::array<std::int64_t, result::kShares> breakdown_ps{};  // mean over ranks of the last step; sums to step_time
  std::array<double, 4> coverage_busy_s{};                   // device busy time by coverage, all ranks
  double busy_low_s = 0, busy_high_s = 0, busy_s = 0;        // for the interval
  std::int64_t ops = 0, events = 0;
  std::vector<result::OpRecord> records;
  result::Links links;                   // of the last step
  std::vector<std::int64_t> link_bytes;  // of the last step, by resource of the cluster
  std::vector<SlowRank> slow_ranks;
  std::vector<std::int64_t> faulty_links;  // by entry of noise.links: how many it befalls
};

// A simulation that cannot proceed: what() says who waits for whom.
class Deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Outcome simulate(const program::Program& program, const plan::RankGrid& grid, const cluster::Cluster& cluster,
                 const collective::CollectiveModel& collectives, const cost::CostModel& costs, const Options& options);

}  // namespace rehearse::engine
