// Operands of one op on a device, in as many sets as rotation over more than four times the L2 cache takes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "calibrate/gpu/bench.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace rehearse::calibrate::gpu {

class Operands {
 public:
  // At most half of `free_bytes` is taken. empty(): not even one set fits.
  Operands(const Kernel& kernel, std::int64_t l2_bytes, std::int64_t free_bytes, kernels::cuda::Stream& stream);
  bool empty() const { return sets_.empty(); }
  std::size_t sets() const { return sets_.size(); }
  const std::vector<kernels::Out>& reads(std::size_t set) const { return sets_[set].reads; }
  const std::vector<kernels::Out>& writes(std::size_t set) const { return sets_[set].writes; }

 private:
  struct Set {
    std::vector<kernels::cuda::DeviceMemory> memory;
    std::vector<kernels::Out> reads, writes;
  };
  std::vector<Set> sets_;
};

// Sets of `bytes` each that make more than four times the cache, as far as `free_bytes` / 2 goes; 0: not one does.
std::size_t sets_for(std::int64_t bytes, std::int64_t l2_bytes, std::int64_t free_bytes);
// Integers of an op's operands are below this: rows of a table, classes.
std::int64_t index_range(const program::Op& op);

}  // namespace rehearse::calibrate::gpu
