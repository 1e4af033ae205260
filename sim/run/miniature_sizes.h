// The numbers of a miniature (miniature.h), before they are a scenario: how many ranks each split has, and the shapes,
// made smaller step by step.
#pragma once

#include <cstdint>

#include "sim/plan/scenario.h"
#include "sim/run/miniature.h"

namespace rehearse::run {

// `large` with its numbers reduced; what follows from several keys (layers of a stage) is to be resolved anew.
// `within`: whether the limits hold.
plan::Scenario miniature_sizes(const plan::Scenario& large, const MiniatureLimits& limits, bool& within);

}  // namespace rehearse::run
