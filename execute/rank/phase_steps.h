// Steps that are taken when they are asked for, by ranks that stand between them, with what certain ops are beside
// themselves: phases of reinforcement learning (execute/reinforcement/). Asked for by one thread.
#pragma once

#include <cstdint>
#include <span>

#include "execute/rank/kernel_call.h"
#include "execute/rank/rank_memory.h"
#include "kernels/device.h"
#include "sim/program/op.h"

namespace rehearse::execute {

class PhaseSteps {
 public:
  virtual ~PhaseSteps() = default;
  // All streams of the rank stand. Waits until the step is asked for; false: none will be any more. Throws Stopped.
  virtual bool begin(int rank, std::int64_t step, const RankMemory& memory) = 0;
  virtual void end(int rank) = 0;
  // Any op that is neither a transfer nor an input, in its stream's thread; its operands as call_kernel() has them.
  virtual void perform(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
                       const CallContext& c) = 0;
};

}  // namespace rehearse::execute
