// What a result says of a step of reinforcement learning, for people: its phases, and generation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/answers.h"
#include "sim/result/result.h"

namespace rehearse::reports {

// Nothing where the step is an ordinary one.
std::vector<std::pair<std::string, std::string>> reinforcement_rows(const result::Result& r);
// A phase each: its time, share of the step, devices, how idle these are, memory.
Rows phase_rows(const result::Result& r);
// These for a terminal.
std::string phases_text(const result::Result& r);
// Of two results: their phases' times side by side, as a table with heading, rows of compare.csv and compare.json.
struct PhaseComparison {
  std::string text, csv, json;
};
PhaseComparison compare_phases(const result::Result& first, const result::Result& second);
// "Generation, the longest phase: ..."
std::string longest_phase(const result::Result& r);
// Where a phase does not fit: which, and by how much; "" where all do.
std::string phase_that_does_not_fit(const result::Result& r);

}  // namespace rehearse::reports
