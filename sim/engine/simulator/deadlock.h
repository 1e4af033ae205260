// Who waits for whom when nothing can happen any more: the first stuck ranks with the op each is at and what that op
// waits for, then the chain from the first of them, to the circle if there is one.
#pragma once

#include <string>

#include "sim/base/units.h"
#include "sim/engine/matching.h"
#include "sim/engine/simulator/hosts.h"
#include "sim/engine/simulator/jobs.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/engine/simulator/streams.h"
#include "sim/engine/simulator/transfers.h"

namespace rehearse::engine {

// The parts of a simulation that is stuck.
struct StuckParts {
  Time now;
  const IdVector<JobId, JobCode>& codes;
  const Ranks& ranks;
  const Jobs& jobs;
  const Streams& streams;
  const Hosts& hosts;
  const Matching& matching;
  const Transfers& transfers;
  bool buffered;  // messages
};

std::string describe_deadlock(const StuckParts& parts);

}  // namespace rehearse::engine
