// search.json (rehearse.search/1) of `rehearse plan -o DIR`: the answer as plans.json has it, and every plan of the
// space that no rule forbids, for the page that shows the space (docs/plan.md, "The page"). Fields:
//
//   schema     "rehearse.search/1"
//   answer     rehearse.plan/1: what plans.json says
//   statuses   what a plan's status is: "too large", "bounded", "simulated"
//   points     an array a plan: [status, step_s, peak_bytes, plan], where step_s is simulated or at least that long,
//              peak_bytes likewise, and plan has a number a key of answer.space: which of its values
#pragma once

#include <string>
#include <vector>

#include "reports/search.h"

namespace rehearse::reports {

inline constexpr const char* kSearchFile = "search.json";

// Of several numbers of GPUs: scaling_json() (search.h), rehearse.plan_scaling/1.
inline constexpr const char* kScalingFile = "scaling.json";

struct SearchFile {
  std::string file, text;
};

std::string search_file_json(const SearchReport& r);
// Each throws InputError: no such file, no JSON, another schema.
SearchFile read_search_file(const std::string& directory);
SearchFile read_scaling_file(const std::string& directory);
// Of what read_scaling_file() read: where the best plan of each number of GPUs lies, below the file's folder.
std::vector<std::string> best_directories(const SearchFile& scaling);

}  // namespace rehearse::reports
