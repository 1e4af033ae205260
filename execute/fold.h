// The step of a reduction that every Communicator makes: what one member adds to the partial result. All go over the
// members in group order, so that losses do not depend on what carries the numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/program/op.h"

namespace rehearse::execute {

// into[0 .. count) plus x, or the maximum of both.
inline void fold(program::ReduceOp op, float* into, const float* x, std::int64_t count) {
  if (op == program::ReduceOp::sum)
    for (std::int64_t i = 0; i < count; ++i) into[i] += x[i];
  else
    for (std::int64_t i = 0; i < count; ++i) into[i] = std::max(into[i], x[i]);
}

}  // namespace rehearse::execute
