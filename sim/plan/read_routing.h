// Reads which experts tokens are sent to, where a scenario says it: model.routing_table, routing_file and routing_step.
#pragma once

#include <string>

#include "sim/base/document.h"
#include "sim/model/model.h"

namespace rehearse::plan::detail {

// A path that the scenario says: relative to its file if it is there, else to the working directory.
std::string found_beside(const Node& said, const std::string& text);

// Where the values stand, or are missing.
struct RoutingKeys {
  Node file, step, table;
};

// model.routing says which of them there has to be. Of a table each row is checked: a share for each expert, of which
// none is above 1 / experts_per_token of their sum. What was recorded is read once the plan is known
// (recorded_routing.cpp). Problems are reported at their place.
void read_routing(const RoutingKeys& keys, model::Model& model);

}  // namespace rehearse::plan::detail
