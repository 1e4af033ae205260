// A role's bodies as longest paths (least_step.h). Times are picoseconds, sums of them below the engine's limit.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"

namespace rehearse::search {

// An entry of what a rank carries from slot to slot: when a stream, the host or an event is done.
using StateId = std::int32_t;

// The latest of some values, each and so much later.
struct Path {
  std::int32_t source = 0;  // of the body
  std::int64_t ps = 0;
};
using Paths = std::vector<Path>;

// What a body meets that is not its own: a message, or a collective with other stages.
struct Meeting {
  struct Message {
    std::int32_t offset = 0, channel = 0;  // to the other stage
    std::int64_t ps = 0;                   // of one that is received: what it takes once both are there
  };
  Paths ready;                           // when this rank is there
  std::int64_t ps = 0;                   // what it takes from then on: a collective once all are there
  std::vector<Message> sends, receives;  // of a message
  std::int32_t group = -1;               // of a collective
  std::int32_t source = 0;               // its end, for the rest of the body
};

struct BodyPaths {
  std::vector<StateId> entries;   // the first sources, one each
  std::int32_t sources = 0;       // those and the ends of meetings
  std::vector<Meeting> meetings;  // in the body's order
  std::vector<std::pair<StateId, Paths>> leaves;
};

struct RolePaths {
  std::int32_t state = 0;  // entries
  std::vector<BodyPaths> bodies;
};

// `ranks`: one of each stage that has the role.
RolePaths paths_of(const program::Program& program, const program::Role& role, const plan::RankGrid& grid,
                   const std::vector<int>& ranks, const cost::CostModel& costs,
                   const collective::CollectiveModel& collectives);

}  // namespace rehearse::search
