// Matrix instructions of a warp and asynchronous copies into shared memory. Without nvcc the functions of these names
// are the emulator's, in plain loops (tests/gpu/emulator/warp_matrix_emulator.h). Fragment layouts: PTX ISA 9.0,
// "Matrix fragments for mma.m16n8k16" and "ldmatrix". With g = lane / 4 and t = lane % 4, a lane holds, of 16-bit
// elements in pairs (the lower column or row in the lower half):
//   A [16, 16]: a0 (row g, columns 2t, 2t+1), a1 (row g+8), a2 (row g, columns 2t+8, 2t+9), a3 (row g+8, those columns)
//   B [16, 8]:  b0 (rows 2t, 2t+1 of column g), b1 (rows 2t+8, 2t+9)
//   C [16, 8]:  c0, c1 (row g, columns 2t, 2t+1), c2, c3 (row g+8), of fp32
// Compute capability 8.0 and later. All 32 lanes make each call together.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"

#ifndef __CUDACC__
#include <warp_matrix_emulator.h>
#else
namespace rehearse::kernels::cuda {

// c += a b. T: __nv_bfloat16 or __half; sums in fp32.
template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Four matrices of 8 rows of 16 bytes in shared memory; lane 8 i + j names row j of the i-th. r[i] is the pair at row
// g, columns 2t and 2t+1 of the i-th matrix; transposed: at rows 2t and 2t+1 of column g.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

// kBytes (4, 8 or 16; both addresses at a multiple of it) to shared memory, in the background; zeros if not `there`.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool there) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(there ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global), "n"(kBytes),
                 "r"(there ? kBytes : 0)
                 : "memory");
  }
}
// This thread's copies since the last commit are a group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all of this thread's groups but the last kLeft. Other threads see the copies after a barrier.
template <int kLeft>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// 2^x to 2 units in the last place, subnormal results are zero.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace rehearse::kernels::cuda
#endif

namespace rehearse::kernels::cuda {

// Rounded to nearest even, `low` in the lower half.
template <class T>
__device__ __forceinline__ unsigned pack_pair(float low, float high) {
  unsigned bits;
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    __builtin_memcpy(&bits, &pair, sizeof bits);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    __builtin_memcpy(&bits, &pair, sizeof bits);
  }
  return bits;
}

}  // namespace rehearse::kernels::cuda
