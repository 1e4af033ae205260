// One kernel on its own, over and over, with Google Benchmark as the harness: what a grid of shapes is measured with.
// The op is called as the Performer calls it (execute/rank/kernel_call.h) on buffers of its operands' sizes, warm.
#pragma once

#include <functional>
#include <vector>

#include "calibrate/budget.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::calibrate {

// Seconds of each repetition of `body`, for about `seconds` in all: a repetition is as many calls as 50 us take, and at
// least one; 3 to 40 repetitions, fewer if `seconds` is short. One call before that is not counted.
std::vector<double> repeat(const std::function<void()>& body, double seconds);

// The same in turns of at most a fifth of a second, between which the budget is polled; ends with the budget.
std::vector<double> repeat_polled(const std::function<void()>& body, double seconds, const Budget& budget);

struct LoneKernel {
  const plan::Scenario& scenario;
  const program::Role& role;
  const program::Op& op;
};
std::vector<double> measure(const LoneKernel& kernel, int threads, double seconds);

// Bytes of the operands.
std::int64_t operand_bytes(const program::Role& role, const program::Op& op);

}  // namespace rehearse::calibrate
