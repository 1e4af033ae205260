// One op of a program as a call of a kernels::Device, and the numbers a call needs beside its operands: the step, the
// rank's coordinate, the examples of the micro-batch. Only fp32 is performed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "sim/plan/scenario.h"
#include "sim/program/op.h"
#include "sim/program/program.h"

namespace rehearse::execute {

// Learning rate of step `step` (from 0) of `steps`: up linearly over the warm-up steps, then constant, or along a half
// cosine to a tenth at the last step (Brown et al. 2020, arXiv 2005.14165, appendix B).
double learning_rate(const plan::Training& training, std::int64_t step, std::int64_t steps);

struct CallContext {
  const plan::Scenario& scenario;
  kernels::Device& device;
  int tensor_coordinate = 0;
  std::int64_t step = 0, steps = 1;           // from 0
  const std::vector<std::int64_t>* examples;  // of the micro-batch; null for slots without one
};

// Any op that is neither a transfer nor an input; HostSync does nothing. Operands in the order of op.h.
void call_kernel(const program::Op& op, std::span<void* const> reads, std::span<void* const> writes,
                 const CallContext& c);

}  // namespace rehearse::execute
