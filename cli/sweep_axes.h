// What --sweep says: keys of the scenario file, and the values that each takes.
#pragma once

#include <string>
#include <vector>

#include "reports/sweep_rows.h"

namespace rehearse::cli {

// From "plan.tensor=1,2,4"; commas inside brackets and quotes belong to a value. Throws InputError: no key of a
// scenario file, a key or a value twice, an empty value, more than 10,000 combinations.
std::vector<reports::SweepAxis> read_axes(const std::vector<std::string>& sweeps,
                                          const std::string& option = "--sweep");

// Throws InputError for a text "plan.tensor=1,2,4" of `option` whose key an assignment "plan.tensor=8" of `by` fixes.
void refuse_fixed(const std::vector<std::string>& sweeps, const std::string& option,
                  const std::vector<std::string>& assignments, const std::string& by);

}  // namespace rehearse::cli
