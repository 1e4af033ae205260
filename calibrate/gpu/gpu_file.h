// What a calibration of a GPU holds, and the device file it becomes (docs/data.md): measured tables as they are, and
// what follows from them for everything else - the share of the memory bandwidth that each class of kernel reaches, the
// constants of the models of products and of attention, the factor from bursts to long runs. One file, read by
// sim/cost/device_file like those that are shipped.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "calibrate/gpu/bench.h"
#include "sim/cost/calibration_file.h"
#include "sim/cost/device_file.h"

namespace rehearse::calibrate::gpu {

// A kernel bound by memory, for the shares of the bandwidth and what steps make of it.
struct MemoryPoint {
  cost::MemoryClass cls = cost::MemoryClass::elementwise;
  double bytes = 0, alone = 0, in_steps = 0;  // seconds; in_steps 0: not walked
  double seconds() const { return in_steps > 0 ? in_steps : alone; }
};

struct GpuCalibration {
  Facts facts;
  cost::Provenance made;
  std::vector<std::pair<std::string, State>> states;                     // when, and what the device was like
  std::vector<std::pair<std::string, execute::DeviceConditions>> walks;  // of which scenario, and the same meanwhile
  std::int64_t reserve_bytes = 0;                                        // besides a rank's tensors; 0: not known
  double copy_bandwidth = 0;  // bytes/s read and written by the best copy on the device
  cost::MeasuredDevice measured;
  std::vector<cost::FlashPoint> flash;
  std::vector<MemoryPoint> memory;
  std::vector<Transfer> transfers;
};

// "h100-80gb-hbm3" for "NVIDIA H100 80GB HBM3": the device's name and the file's.
std::string device_name(const std::string& gpu);

// Dense rates of the matrix units: of the data sheet for the GPUs it knows, else from the clock.
struct Peaks {
  double bf16 = 0, tf32 = 0, fp32 = 0;  // FLOP/s
};
Peaks peaks_of(const Facts& facts, int max_sm_mhz);

// Of a kernel that does next to nothing: the fastest of those measured.
double least_kernel_time(const GpuCalibration& c);
// burst / long-run time of the products measured both ways: median, 10th and 90th percentile; ones if none was.
cost::Range sustained_of(const std::vector<cost::ProductPoint>& products);

// The scatter of each class's bursts, the median over its shapes: (ln p90 - ln p10) / 2.563, as of a lognormal
// distribution. A burst is a graph of many launches, so a single kernel scatters at least as much.
cost::Jitter jitter_of(const cost::MeasuredDevice& measured);

// The file's text.
std::string to_yaml(const GpuCalibration& c);

// Products held out, as costs made of `file` predict them: |predicted / measured - 1|, in burst clocks.
struct HeldOut {
  std::string what;
  double measured = 0, predicted = 0;  // seconds, in a long run
  cost::Coverage coverage = cost::Coverage::spec;
};
std::vector<HeldOut> check_held_out(const std::string& file);

}  // namespace rehearse::calibrate::gpu
