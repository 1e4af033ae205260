// What a result says of parameter servers, for people.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports {

// Rows of the table of a result: rates, what bounds them, staleness; none where there are no servers.
std::vector<std::pair<std::string, std::string>> server_rows(const result::Result& r);
// How old gradients were, a line each with a bar; "" where there is nothing to tell.
std::string staleness_histogram(const result::ParameterServers& p);

}  // namespace rehearse::reports
