// A search that several processes share: each settles its part of the plans, and all are told what the others found, so
// that they take the same way through the space. Which plan is whose depends on the space alone, and so does the
// outcome. How they tell each other says run::Processes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "sim/search/space.h"

namespace rehearse::search {

struct Plan;

// What one process found of some plans: a line each.
class Findings {
 public:
  // `reason`: of a plan that is forbidden.
  void add(std::size_t index, const Plan& plan, const std::string& reason);
  std::string text(bool limit_reached) const;

 private:
  std::string lines_;
};

// Puts them into `plans`, and tells of each that is forbidden its reason. Returns whether that process had reached the
// limit.
bool take_findings(const std::string& text, std::vector<Plan>& plans,
                   const std::function<void(const std::string& reason)>& forbidden);

// Of each plan the process that settles it first: plans that share what is lowered for many (those that are alike in
// all keys but `separate`) have one.
std::vector<int> shares_by_family(const Space& space, const std::vector<Plan>& plans, int parts,
                                  const std::function<bool(const std::string& key)>& separate);

}  // namespace rehearse::search
