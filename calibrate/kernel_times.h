// The table of kernel times as it grows: by key, the durations of every occurrence of an op that was measured. An
// occurrence is an op of a slot of a rank in a profiled program, or a kernel on its own; its samples are repetitions.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/statistics.h"
#include "sim/cost/calibration_file.h"
#include "sim/program/program.h"

namespace rehearse::calibrate {

// What tells one calibrated kernel from another (docs/calibration.md).
struct KernelKey {
  std::string kind, shape;
  program::DType dtype = program::DType::f32;
  int threads = 1, busy = 1;
  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;
};
KernelKey key_of(const program::Role& role, const program::Op& op, int threads, int busy);
// Whether an op has a time of its own: not a transfer, no host sync.
bool is_kernel(const program::Op& op);

class KernelTimes {
 public:
  // The samples of one occurrence, in seconds; at least one. `typical`: what stands for them, if not their median.
  void add(const KernelKey& key, double flops, double bytes, std::vector<double> samples,
           std::optional<double> typical = {});
  bool contains(const KernelKey& key) const { return entries_.contains(key); }
  std::size_t size() const { return entries_.size(); }
  // By key. The mean is that of the occurrences' medians, so that a sum over the occurrences of a step is what the step
  // takes, and one interrupted repetition does not count; the quantiles are those of all samples.
  std::vector<cost::CalibratedKernel> all(cost::Origin origin) const;

 private:
  struct Entry {
    double flops = 0, bytes = 0;
    std::vector<double> samples, medians;
  };
  std::map<KernelKey, Entry> entries_;
};

}  // namespace rehearse::calibrate
