// Results as plain-text tables for a terminal, at most 80 columns wide.
#pragma once

#include <string>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports {

// One result: speed, where the step goes, memory by stage and class, coverage with its interval, cost, engine.
std::string summary(const result::Result& r);

// Plans side by side, a row each, then a sentence each on what limits it; days and GPU-hours are for `tokens` tokens. A
// plan that does not fit says what it needs instead of its speed. Rows are labelled by the scenario files' names
// without what they all begin with.
std::string comparison(const std::vector<result::Result>& results, double tokens = 300e9);

}  // namespace rehearse::reports
