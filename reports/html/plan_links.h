// What joins the ranks of a plan, as three drawings side by side: the ring of replicas (data), the group that splits
// layers (tensor), and the stages one after the other (pipeline), each with the bytes that a step moves there and the
// kind of link that carries them. From the recorded ops of one rank a stage. Internal to the report page.
#pragma once

#include <string>

#include "reports/html/plan.h"
#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

// "" where no transfers were recorded.
std::string plan_links_figure(const result::StoredResult& run, const PlanGrid& grid);

}  // namespace rehearse::reports::html
