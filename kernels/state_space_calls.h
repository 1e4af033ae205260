// What devices have that compute Mamba-2 mixers (execute/placement/gpus.h refuses them elsewhere).
#pragma once

#include <span>

#include "kernels/operands.h"
#include "sim/base/state_space.h"

namespace rehearse::kernels {

class StateSpaceCalls {
 public:
  virtual ~StateSpaceCalls() = default;
  // A part of a mixer, with the operands and sizes of sim/base/state_space.h.
  virtual void state_space(const StateSpace& s, std::span<const Out> reads, std::span<const Out> writes) = 0;
};

}  // namespace rehearse::kernels
