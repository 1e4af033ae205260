// Section of the report page on how measured runs went, from their steps.csv: time a step, time since the beginning,
// compute by rank with the straggler marked, and how long each run took to a loss that all reach. Internal to the page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

// "" where no run has a history of two steps. Of the time to a loss: to `target`, or the lowest that all reach.
std::string history_section(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names,
                            std::optional<double> target);

}  // namespace rehearse::reports::html
