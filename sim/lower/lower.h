// Model x Plan -> Program. Pure: the same input gives the same program. See lower.cpp for the main flow, one file a
// strategy beside it.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::lower {

program::Program lower(const plan::Scenario& scenario);

// What bounds of a plan need (sim/search): of stages that differ in their layers' numbers and their slots alone, one.
struct DistinctStages {
  program::Program program;                       // with a role for each of them, no program to be run
  std::vector<std::size_t> role_of;               // by stage
  std::vector<std::vector<program::Slot>> slots;  // by stage
};
// Of stages with a role for each place in an expert group, that of the first place. Without `alike` each stage by
// itself.
DistinctStages lower_distinct(const plan::Scenario& scenario, bool alike = true);

// Of each layer of a transformer what its ops and buffers depend on, but for its number and for being the first or the
// last: layers with equal ones are alike.
std::vector<std::vector<std::int64_t>> kinds_of_layers(const plan::Scenario& scenario);

}  // namespace rehearse::lower
