// Calibrates a GPU through a Bench. The flow, in the order in which a budget is worth spending: what the device gives
// at best (copies, launches); a walk through the scenarios' programs, whose kernels are timed in steps that are
// performed (walk.h, walked_kernels.h); the kernels of all their programs, one by one in bursts; where nothing could be
// walked, the heaviest products together in a long run; NCCL where there are several GPUs; what holding multiprocessors
// and moving memory costs a product; then whatever else fits of the grid (kernels_to_time.h).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "calibrate/gpu/bench.h"
#include "calibrate/gpu/gpu_file.h"
#include "calibrate/gpu/timing.h"

namespace rehearse::calibrate::gpu {

struct GpuRequest {
  std::vector<plan::Scenario> scenarios;
  std::set<std::size_t> not_walked;  // of scenarios: timed one by one alone, so that a walk can be checked on them
  double budget_s = 60;
  double sustained_s = 10;  // of the long run; none in budgets below three times that, nor after a walk
  Protocol protocol;
  bool grid = true;  // beyond the scenarios
  std::int64_t largest_copy = std::int64_t{256} << 20;
  std::string command;
  std::function<void(const std::string& what, double done)> progress;
};

struct GpuOutcome {
  GpuCalibration calibration;
  std::vector<std::string> shortfalls;  // for people
  double covered = 0;                   // share of the scenarios' estimated kernel time that was measured exactly
};

GpuOutcome calibrate_gpu(Bench& bench, const GpuRequest& request);

}  // namespace rehearse::calibrate::gpu
