// rehearse calibrate --device cuda: calibrates the first GPU in reach (CUDA_VISIBLE_DEVICES chooses) and writes one
// device file (docs/calibration.md). Used by `validate --gpu` too.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "calibrate/gpu/gpu_file.h"
#include "sim/plan/scenario.h"

namespace rehearse::cli {

struct CudaCalibration {
  std::vector<plan::Scenario> scenarios;
  std::set<std::size_t> not_walked;  // of scenarios: calibrate::gpu::GpuRequest's
  double budget_s = 60;
  std::string command;
  std::string file;               // empty: NAME.yaml in the user's cache
  bool measure_products = false;  // calibrate::gpu::make_cuda_bench's
};
struct CudaCalibrated {
  std::string file, text;
  std::string summary;  // for people
  std::vector<calibrate::gpu::HeldOut> held_out;
};
// With a progress line; writes the file whole or not at all. Throws InputError "no CUDA device: REASON".
CudaCalibrated calibrate_cuda(const CudaCalibration& how);

// |predicted / measured - 1| of shapes held out: median and worst, 0 without any.
struct HeldOutErrors {
  int shapes = 0;
  double median = 0, worst = 0;
};
HeldOutErrors errors_of(const std::vector<calibrate::gpu::HeldOut>& held_out);

void require_cuda_device();

}  // namespace rehearse::cli
