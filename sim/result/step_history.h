// What steps.csv says of a measured run (execute/step_table.h), as the report shows it: of each step the slowest rank's
// time, and of each rank what it computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/result/output_file.h"
#include "sim/result/result.h"

namespace rehearse::result {

struct StepHistory {
  std::int64_t first_step = 1;         // of the training, from 1
  std::vector<double> loss;            // by step, as all that follows but for ranks
  std::vector<std::int64_t> step_ps;   // of the slowest rank
  std::vector<std::int64_t> end_ps;    // since the run began, of the last rank
  std::vector<std::int64_t> computed;  // by rank: ps of all steps; empty: not known (a simulated run)
  std::vector<std::int64_t> slowest;   // by rank: steps in which it computed longest, the lowest rank of several

  bool known() const { return !step_ps.empty(); }
  // When a step of the training ended, ps since the run began; nothing: it is not of this run.
  std::optional<std::int64_t> end_of(std::int64_t step) const;
};

// steps.csv of a simulated run, from Result::step_ends_ps: step, rank, loss (nan: nothing is trained), end_s, step_s.
// Where a step's time went is known of the last alone, and so not there.
void write_simulated_steps(const Result& r, OutputFile& out);

// Throws InputError, with all problems up to a number of them.
StepHistory parse_steps_csv(const std::string& file, std::string_view text);

// How long it took until a loss was reached that the mean over `window` steps, up to that one, does not exceed; steps
// -1: it was not.
struct TimeToLoss {
  std::int64_t steps = -1;
  std::int64_t ps = 0;
};
// Of each `window` of steps, the first one's first; one that holds a loss that is no number is none.
std::vector<double> mean_losses(const StepHistory& history, std::int64_t window);
TimeToLoss time_to_loss(const StepHistory& history, double loss, std::int64_t window);
// Losses of single steps scatter, as their batches do: a loss is reached by the mean of so many steps.
inline constexpr std::int64_t kLossWindow = 10;
LossTarget loss_target(const StepHistory& history, double loss);

}  // namespace rehearse::result
