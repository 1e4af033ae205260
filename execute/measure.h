// What was measured, as the same Result a simulation gives. A step of a rank is what lies between two ends of its
// compute stream's last op; the compute stream's time in it is ops (compute, optimizer) and waits, called as
// sim/account/blame.h says. The reported step is the one whose slowest rank is the median over the steps after two of
// warm-up; where another rank was quicker, the difference counts as other, so that the mean over ranks sums to the
// step's time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::execute {

using Shares = std::array<std::int64_t, result::kShares>;  // ps

// What the wait of `rank` for the last participant of a transfer is called; `last`: that rank, of a collective (-1: not
// known, as if it were of another role where one of the group may be).
result::Share late_share(const program::Program& program, const plan::RankGrid& grid, int rank, const program::Op& op,
                         int last);

// By rank and step.
using StepShares = std::vector<std::vector<Shares>>;

// Fills step time, rates and breakdown: of the median step, or with local steps the mean over that of the median round.
// `first_step` is of the training.
void add_times(const StepShares& shares, const plan::Scenario& scenario, std::int64_t first_step, result::Result& out);
// Fills FLOPs, memory by stage, names and counts from the program.
void add_program(const program::Program& program, const plan::Scenario& scenario, const plan::RankGrid& grid,
                 bool names, result::Result& out);

}  // namespace rehearse::execute
