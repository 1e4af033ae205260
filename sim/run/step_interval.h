// How far steps of a framework's runs lie from ours: learned from published runs by `rehearse validate --throughput CSV
// --intervals FILE`, shipped as calibrate/published/step-intervals.csv.
#pragma once

#include <string>

namespace rehearse::run {

// What a real step may be of ours, as factors.
struct StepInterval {
  double low = 1, high = 1;
};

// Of the runs of a framework profile; of one that has no runs, that of the source that is furthest off. `left_out`: a
// source of published runs; then what all other sources say of a source that is not among them. Without the table in
// `data_root` (a directory) as for no runs at all: kUnknown. Throws InputError for a table that cannot be read.
StepInterval step_interval(const std::string& framework, const std::string& left_out, const std::string& data_root);

// Wider than any source of the table: where there is none. A judgement.
inline constexpr StepInterval kUnknown = {0.75, 2};

}  // namespace rehearse::run
