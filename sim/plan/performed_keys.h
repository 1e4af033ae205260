// The keys of a scenario that have a say in what is performed, as text: what processes that train together must agree
// on. Leaves out what is only simulated (topology, costs, noise, other jobs), the scenario's name and its file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/plan/scenario.h"

namespace rehearse::plan {

// Key path and resolved value, in the order of the file: {"model.layers", "12"}. Equal values have equal texts.
std::vector<std::pair<std::string, std::string>> performed_keys(const Scenario& scenario);

}  // namespace rehearse::plan
