// Sums and maxima over a warp and over the warps of a block, in an order that never changes: halves of the warp
// pairwise, then the warps from the first to the last. Every thread gets the result.
#pragma once

#include "kernels/cuda/launch.h"

namespace rehearse::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(kAllLanes, v, lanes);
  return v;
}
__device__ inline double warp_sum(double v) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(kAllLanes, v, lanes);
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, v, lanes);
    v = other > v || other != other ? other : v;  // not a number wins
  }
  return v;
}

// Over the warps threadIdx.x / 32 of rows of threads threadIdx.y. `shared` has room for blockDim.x / 32 values a row
// and is not used for anything else until the block's next barrier; all threads of the block call it.
template <class T>
__device__ T row_sum(T v, T* shared) {
  v = warp_sum(v);
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return v;
  T* mine = shared + threadIdx.y * warps;
  if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = v;
  __syncthreads();
  v = mine[0];
  for (unsigned w = 1; w < warps; ++w) v += mine[w];
  return v;
}

}  // namespace rehearse::kernels::cuda
