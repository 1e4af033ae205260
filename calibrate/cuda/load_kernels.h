// Kernels that only a calibration needs: random operands, nothing at all, and a background load for a product - one
// that holds multiprocessors, one that moves memory at a set rate.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "sim/base/dtype.h"

namespace rehearse::calibrate::gpu {

// Numbers of a normal distribution (16-bit types), its absolute values, at least 0.01 (fp32: variances and sums that a
// kernel takes roots of), or 0 .. range - 1 (i32, u8). What an element becomes depends on its index and the seed alone.
void fill_random(void* data, DType type, std::int64_t elements, std::int64_t range, std::uint64_t seed,
                 kernels::cuda::Stream& stream);

void launch_nothing(kernels::cuda::Stream& stream);

// What the host and the load's blocks tell one another, in pinned memory: each block says that it runs in a word of
// its own, since atomic operations on the host's memory are not to be had everywhere.
struct Signals {
  static constexpr unsigned kMostBlocks = 64;
  volatile unsigned started[kMostBlocks] = {};
  volatile unsigned stop = 0;
};

// `blocks` of them, each alone on its multiprocessor (it takes all the shared memory there is), until `stop`.
void launch_holder(int blocks, int shared_bytes, Signals* signals, kernels::cuda::Stream& stream);
// Copies between the halves of `buffer`, `rate` bytes/s read and written in all, until `stop`; moved [blocks] counts
// chunks of kMoverChunk bytes copied by each.
inline constexpr int kMoverBlocks = 16;
inline constexpr std::int64_t kMoverChunk = 64 << 10;
void launch_mover(void* buffer, std::int64_t bytes, double rate, Signals* signals, unsigned long long* moved,
                  kernels::cuda::Stream& stream);

}  // namespace rehearse::calibrate::gpu
