// What a process says of its workers and its parameter servers once they have ended, and what the root makes of it: the
// result's rates and staleness. Times are picoseconds since the run began.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/rank/parameters.h"
#include "execute/rank/rank.h"
#include "sim/account/server_events.h"
#include "sim/account/server_shards.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::execute {

// The end of a worker's iteration: its gradient is sent, or was one too many (counted 0).
struct WorkerEnd {
  std::int64_t when_ps = 0, counted = 1;
};
struct WorkerRecord {
  std::int32_t worker = 0;
  std::vector<WorkerEnd> ends;  // by iteration, from the run's first on
};
struct ServerRecord {
  std::int32_t server = 0;
  std::int64_t elements = 0, state_bytes = 0;  // bytes: values and moments
  std::vector<account::ServerEvent> events;    // in order
  std::vector<std::int64_t> steps_ps;          // of a synchronous plan: when each step was applied
  std::int64_t most_ahead = 0;                 // iterations that a worker was ahead of the slowest; server 0 knows
  CheckpointUse checkpoints;
  std::vector<float> values;  // if asked for
};
struct ServedRecords {
  std::vector<WorkerRecord> workers;
  std::vector<ServerRecord> servers;  // by number
};

// Rates of a worker between the end of its first iteration and its last one that ended while all were under way; and in
// `out` the time of a step, where there is none that all take together. `role` is a worker's; `first` is the iteration
// that the run began with, `steps` where it ended.
void add_served(const plan::Scenario& scenario, const program::Role& role, const ServedRecords& records,
                std::int64_t first, std::int64_t steps, result::Result& out);
std::vector<account::ServerEvent> events_of(const ServedRecords& records);
// The servers' values, by parameter.
Parameters parameters_of(const program::Role& role, const ServedRecords& records);

}  // namespace rehearse::execute
