// Times the kernels of a program where they stand: a rank's steps are performed on the GPU as `execute` performs them
// (execute/rank/gpu/gpu_rank.h), transfers left out, each op between two events. So a kernel finds in the L2 cache what
// the one before it left there, and the clock is what the mix of kernels allows under the power limit; a kernel on its
// own, with cold operands or in a run of products alone, has neither.
//
// The host is two steps ahead of the device but in the first steps, and the power limit takes a while to lower the
// clock: the later half of the steps counts. What events add to a span is about a microsecond, so times of kernels
// below kLeastWalkedS are not taken from a walk.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "calibrate/gpu/bench.h"
#include "execute/rank/gpu/gpu.h"
#include "execute/rank/rank.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::calibrate::gpu {

inline constexpr double kLeastWalkedS = 20e-6;
inline constexpr int kStepsBeforeWalk = 2;  // besides those of a walk: libraries set themselves up

struct WalkRequest {
  const plan::Scenario& scenario;
  const program::Program& program;
  int stage = 0;  // whose first rank performs
  int steps = 10;
  double limit_s = 60;
  bool measure_products = false;  // execute::GpuOptions's
  std::function<void()> poll;     // many times a second; what it throws ends the walk
};

// Throws execute::GpuOutOfMemory, or std::runtime_error if an op fails or the limit is reached.
Walk walk(const WalkRequest& request, std::unique_ptr<execute::Gpu> gpu);

}  // namespace rehearse::calibrate::gpu
