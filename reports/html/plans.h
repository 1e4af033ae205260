// Several plans in one table, a row a plan, before anything is said of each. Internal to the report page.
#pragma once

#include <string>
#include <vector>

#include "reports/html/html.h"
#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

// "" of a single run. In each column the best value of the plans that fit is marked, where they differ; the plan with
// most tokens (samples) a second of those has a star.
std::string plans_table(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names,
                        const HtmlOptions& options);

}  // namespace rehearse::reports::html
