// How far steps of a framework's runs lie from ours: learned from published runs by `rehearse validate --throughput CSV
// --intervals FILE`, shipped as calibrate/published/step-intervals.csv.
#pragma once

#include <string>

namespace rehearse::run {

// What a real step may be of ours, as factors; and the error interval that the kernels of the runs it was learned from
// have by themselves, whose errors it holds. 1 and 1: it holds none.
struct StepInterval {
  double low = 1, high = 1, kernels_low = 1, kernels_high = 1;
};

// Of the runs of a framework profile; of one that has no runs, that of the source that is furthest off. `left_out`: a
// source of published runs; then what all other sources say of a source that is not among them. Without the table in
// `data_root` (a directory) as for no runs at all: kUnknown. Throws InputError for a table that cannot be read.
StepInterval step_interval(const std::string& framework, const std::string& left_out, const std::string& data_root);

// `learned` for a step whose kernels have an error interval of `kernels` (factors of the step, low and high). What that
// is wider than the learned-from runs' own is an error that no run has shown, taken as independent of those that runs
// have: widths, as logarithms, add as squares.
//   ln(high)^2 = ln(learned.high)^2 + max(0, ln(kernels.high)^2 - ln(learned.kernels_high)^2), and low alike
StepInterval with_kernels(const StepInterval& learned, double kernels_low, double kernels_high);

// Wider than any source of the table: where there is none. A judgement.
inline constexpr StepInterval kUnknown = {0.75, 2};

}  // namespace rehearse::run
