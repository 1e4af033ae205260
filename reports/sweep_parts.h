// Rows of a sweep on their way from the process that has simulated them to the one that prints all.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/sweep_rows.h"

namespace rehearse::reports {

// A sweep's rows of which process `part` of `parts` simulates every parts-th, its own first.
inline bool row_of_part(std::size_t row, int part, int parts) {
  return row % static_cast<std::size_t>(parts) == static_cast<std::size_t>(part);
}

// What fill() or an InputError put into the part's rows, as JSON; numbers are the same when they are read again.
std::string pack_part(const std::vector<SweepRow>& rows, int part, int parts);
// Into the rows of the same sweep. Throws std::runtime_error if they are not.
void unpack_part(const std::string& text, std::vector<SweepRow>& rows, int part, int parts);

}  // namespace rehearse::reports
