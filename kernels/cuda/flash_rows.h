// What kernels of attention by multiply-adds in fp32 share (flash_plain.cu, context_attention.cu): tiles of 32 rows as
// fp32 in shared memory, a row a warp, sums of which each lane has columns.
#pragma once

#include <initializer_list>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/reduce.h"

namespace rehearse::kernels::cuda {

inline constexpr int kFlashWarps = 8, kFlashTile = 32,
                     kFlashColumns = kFlashMaxHeadDim / 32;  // columns of sums a lane has

__device__ inline float flash_warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}
__device__ inline float flash_warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}

// Rows [first, first + 32) below `limit` of a matrix, as fp32, rows head_dim + 1 apart; zeros beyond.
template <class T>
__device__ void stage_rows(float* to, const Source<T>& from, std::int64_t at, std::int64_t stride, int first, int limit,
                           int head_dim) {
  for (int i = static_cast<int>(threadIdx.x); i < kFlashTile * head_dim; i += 32 * kFlashWarps) {
    const int row = i / head_dim, column = i % head_dim;
    to[row * (head_dim + 1) + column] = first + row < limit ? from.get(at + (first + row) * stride + column) : 0.0F;
  }
}
// One row for this warp alone.
template <class T>
__device__ void stage_row(float* to, const Source<T>& from, std::int64_t at, bool there, int head_dim) {
  for (int c = static_cast<int>(threadIdx.x) % 32; c < head_dim; c += 32) to[c] = there ? from.get(at + c) : 0.0F;
}
__device__ inline float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}
// sums[c] += weight of row i * rows[i][c], over the 32 rows; lane l has columns l, l + 32, ...
__device__ inline void add_rows(float (&sums)[kFlashColumns], float weight, const float* rows, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < kFlashTile; ++i) {
    const float w = __shfl_sync(kAllLanes, weight, i);
#pragma unroll
    for (int n = 0; n < kFlashColumns; ++n)
      if (lane + 32 * n < head_dim) sums[n] += w * rows[i * (head_dim + 1) + lane + 32 * n];
  }
}
template <class T>
__device__ void put_row(const float (&sums)[kFlashColumns], float factor, const Target<T>& to, std::int64_t at,
                        int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kFlashColumns; ++n)
    if (lane + 32 * n < head_dim) to.put(at + lane + 32 * n, sums[n] * factor);
}

// f.operator()<float>() if all is fp32, else for types told apart when the kernel runs.
template <class F>
void fp32_or_any(std::initializer_list<In> operands, F&& f) {
  bool fp32 = true;
  for (const In& o : operands) fp32 = fp32 && o.type == DType::f32;
  if (fp32) return f.template operator()<float>();
  f.template operator()<AnyType>();
}

}  // namespace rehearse::kernels::cuda
