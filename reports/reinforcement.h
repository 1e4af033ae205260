// What a result says of a step of reinforcement learning, for people: its phases, and generation.
#pragma once

#include <cstdint>
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
// Of a step of phases, else nullptr. And as a sentence: "Generation, the longest phase: ..."
const result::ReinforcementPhase* longest(const result::Result& r);
std::string longest_phase(const result::Result& r);
// What the fullest device needs in the whole step, bytes: what its stage does at its peak or, with phases, the phase
// that needs most, which is `phase` where it needs more than any stage does in the update that stages are of.
struct Fullest {
  std::int64_t bytes = 0;
  const result::ReinforcementPhase* phase = nullptr;
};
Fullest fullest(const result::Result& r);
// "of all phases generation needs most: 77.31 GB"; "" without such a phase.
std::string fullest_phase(const result::Result& r);
// Where a phase does not fit: which, and by how much; "" where all do.
std::string phase_that_does_not_fit(const result::Result& r);

}  // namespace rehearse::reports
