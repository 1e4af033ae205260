// Simulated against measured by class of op, for two runs of one plan. Internal to the report page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

struct KindError {
  std::string kind;  // a kernel class (op_class.h), or a transfer's kind and group
  std::int64_t ops = 0, simulated_ps = 0, measured_ps = 0;  // sums over the ops that both runs have
};

// Ops are matched by stage, slot, body and op; a transfer's time counts from when its last participant had come. By
// measured time, longest first; empty if nothing matches.
std::vector<KindError> kind_errors(const result::StoredResult& simulated, const result::StoredResult& measured);

// The first simulated and the first measured run, if there are both and they share ops: the table; else "".
std::string errors_table(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names);

}  // namespace rehearse::reports::html
