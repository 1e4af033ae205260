// Model x Plan -> Program. Pure: the same input gives the same program. See lower.cpp for the main flow, one file a
// strategy beside it.
#pragma once

#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::lower {

program::Program lower(const plan::Scenario& scenario);

}  // namespace rehearse::lower
