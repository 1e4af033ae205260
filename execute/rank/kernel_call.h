// One op of a program as a call of a kernels::Device, and the numbers a call needs besides its operands: what the step
// is, the rank's coordinate, the micro-batch's place among the step's sequences.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "sim/plan/scenario.h"
#include "sim/program/op.h"
#include "sim/program/program.h"

namespace rehearse::execute {

// Learning rate of step `step` (from 0) of `steps`: up linearly over the warm-up steps, then constant, or along a half
// cosine to a tenth at the last step (Brown et al. 2020, arXiv 2005.14165, appendix B).
double learning_rate(const plan::Training& training, std::int64_t step, std::int64_t steps);

// Of step `step` of `steps`, the same on every rank.
kernels::StepValues step_values(const plan::Training& training, std::int64_t step, std::int64_t steps);

struct CallContext {
  const plan::Scenario& scenario;
  kernels::Device& device;
  int tensor_coordinate = 0, context_coordinate = 0;
  const kernels::StepValues* step = nullptr;  // device memory
  std::int64_t first_sequence = 0;            // of the micro-batch, counted from the step's first
  const plan::RankGrid* grid = nullptr;       // nullptr: the rank is the first of every group
  int rank = 0;
  // Sequences packed of documents have equal ones (program::Attention::document), not those of their examples.
  bool equal_documents = false;
};

// Any op that is neither a transfer nor an input; HostSync does nothing. Operands in the order of op.h; reads are
// all operands' types as their buffers have them.
void call_kernel(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
                 const CallContext& c);

}  // namespace rehearse::execute
