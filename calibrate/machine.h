// What the machine gives at best, and what its cores take from one another.
#pragma once

#include <array>
#include <vector>

#include "calibrate/budget.h"
#include "sim/cost/calibration_file.h"

namespace rehearse::calibrate {

struct Peaks {
  double flops = 0;      // of a product of fp32 matrices, 1024 on a side, by all cores
  double bandwidth = 0;  // bytes/s read and written by a copy of 64 MiB, all cores
};
Peaks measure_peaks(int cores, double seconds, const Budget& budget);

// The best rate at which products kept all cores busy, from what was measured of them; 0 if nothing was. A product of a
// program may beat the one that measure_peaks() took, on a machine that was not quiet then.
double best_product_rate(const std::vector<cost::CalibratedKernel>& kernels, int cores);

using Slowdowns = std::array<std::array<double, cost::kLoads>, cost::kLoads>;
// [what][beside]: of one thread when every other core does `beside`: products that fit a core's caches (gemm), copies
// of memory (memory), sums of two buffers into a third as reductions do (transfer). Ones with a single core.
Slowdowns measure_sharing(int cores, double seconds, const Budget& budget);

}  // namespace rehearse::calibrate
