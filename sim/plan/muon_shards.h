// How many layers a stage needs where Muon's whole matrices are shared among ranks (lower/parallel/muon.cpp): a stage
// has as many matrices of a shape as layers, or as these have experts on a rank, and no more ranks share them.
#pragma once

#include <cstdint>

#include "sim/plan/scenario.h"

namespace rehearse::plan {

// Of each stage, or of each chunk of it; 1 where nothing is shared.
std::int64_t least_layers(const Scenario& scenario);

}  // namespace rehearse::plan
