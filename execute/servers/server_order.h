// An order for what parameter servers do, as it was simulated or recorded of a run: what it must have to be kept by a
// run of this plan. Of synchronous servers it says which workers make a step; of others, all that each server does.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "sim/account/server_events.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

struct Options;

// The path of what is wrong with an order.
inline constexpr const char* kOrderOfServers = "order of servers";

struct ServerOrder {
  bool given = false;
  std::vector<std::vector<account::ServerEvent>> acts;  // by server; synchronous: empty
  std::map<std::int64_t, std::set<int>> members;        // synchronous: of each step, its workers
};

// Options::server_order from iteration `first` on. Throws InputError for an order of another plan or of fewer
// iterations, and for one in which a checkpoint is due between two acts that it has the other way round.
ServerOrder server_order(const plan::Scenario& scenario, const Options& options, std::int64_t first);

// The first step behind `step` at which a checkpoint is due; past the run's end if none is.
std::int64_t next_due(const Options& options, std::int64_t step);

}  // namespace rehearse::execute
