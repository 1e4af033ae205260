// Static figures of the report page: where the step goes, memory, losses, and simulated against measured. Internal to
// the report page.
#pragma once

#include <string>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

// A bar a run on one scale of time; a bubble is an empty part of the bar.
std::string breakdown_figure(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names);
// A bar a stage, its classes side by side, against the device's capacity; stages alike share one.
std::string memory_figure(const result::Result& r);
// Loss against step, and below it against time where the ends of steps are known; "" for fewer than two losses.
std::string loss_figure(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names);

}  // namespace rehearse::reports::html
