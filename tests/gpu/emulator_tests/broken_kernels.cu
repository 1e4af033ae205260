// See broken_kernels.h.
#include "kernels/cuda/launch.h"
#include "tests/gpu/emulator_tests/broken_kernels.h"

namespace rehearse::kernels::cuda::broken {
namespace {

__global__ void reverse_kernel(bool barrier, int* data) {
  __shared__ int held[64];
  held[threadIdx.x] = data[threadIdx.x];
  if (barrier) __syncthreads();
  data[threadIdx.x] = held[63 - threadIdx.x];
}

__global__ void neighbour_kernel(bool barrier, int* data) {
  __shared__ int held[32];
  held[threadIdx.x] = data[threadIdx.x];
  if (barrier) __syncwarp();
  data[threadIdx.x] = held[(threadIdx.x + 1) % 32];
}

__global__ void branch_kernel(bool whole_block) {
  if (whole_block || threadIdx.x < 7) __syncthreads();
}

__global__ void warp_sum_kernel(unsigned mask, int* sum) {
  if (threadIdx.x >= 16) return;
  int v = static_cast<int>(threadIdx.x);
  for (int d = 8; d > 0; d /= 2) v += __shfl_xor_sync(mask, v, d);
  if (threadIdx.x == 0) *sum = v;
}

__global__ void blocks_kernel(int stride, int* data) {
  if (threadIdx.x == 0) data[blockIdx.x * stride] = static_cast<int>(blockIdx.x);
}

__global__ void count_kernel(bool clear, int* data) {
  __shared__ int count;
  if (clear && threadIdx.x == 0) count = 0;
  __syncthreads();
  atomicAdd(&count, 1);
  __syncthreads();
  if (threadIdx.x == 0) data[blockIdx.x] = count;
}

__global__ void past_kernel(int* data, int place) {
  data[0] = data[place];
}

__global__ void wide_kernel(const int* data, uint4* out) {
  *out = *reinterpret_cast<const uint4*>(data);
}

__global__ void votes_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned odd = __ballot_sync(0xFFFFFFFFU, lane % 2);
  const unsigned alike = __match_any_sync(0xFFFFFFFFU, lane / 8);
  const int up = __shfl_up_sync(0xFFFFFFFFU, lane, 1), down = __shfl_down_sync(0xFFFFFFFFU, lane, 1, 8);
  const int first = __shfl_sync(0xFFFFFFFFU, lane, 0, 16), most = __reduce_max_sync(0xFFFFFFFFU, lane);
  const int count = __syncthreads_count(threadIdx.x < 40), all = __syncthreads_and(threadIdx.x < 63);
  const int any = __syncthreads_or(threadIdx.x == 63);
  if (threadIdx.x != 63) return;
  const int values[] = {static_cast<int>(odd), static_cast<int>(alike), up, down, first, most, count, all, any};
  for (int i = 0; i < 9; ++i) out[i] = values[i];
}

__global__ void dynamic_kernel(std::size_t last, int* out) {
  REHEARSE_DYNAMIC_SHARED(int, held);
  if (threadIdx.x == 31) held[last] = 42;
  __syncthreads();
  if (threadIdx.x == 0) *out = held[last];
}

}  // namespace

void reverse_block(bool barrier, int* data, const Stream& stream) {
  launch(reverse_kernel, 1, 64, 0, stream, barrier, data);
}
void neighbours_of_warp(bool barrier, int* data, const Stream& stream) {
  launch(neighbour_kernel, 1, 32, 0, stream, barrier, data);
}
void branch_barrier(bool whole_block, const Stream& stream) {
  launch(branch_kernel, 1, 64, 0, stream, whole_block);
}
void warp_sum_of(unsigned mask, int* sum, const Stream& stream) {
  launch(warp_sum_kernel, 1, 32, 0, stream, mask, sum);
}
void write_from_blocks(int stride, int* data, const Stream& stream) {
  launch(blocks_kernel, 4, 32, 0, stream, stride, data);
}
void count_in_shared(bool clear, int* data, const Stream& stream) {
  launch(count_kernel, 3, 96, 0, stream, clear, data);
}
void read_past(int* data, int place, const Stream& stream) {
  launch(past_kernel, 1, 1, 0, stream, data, place);
}
void read_wide(const int* data, int* out, const Stream& stream) {
  launch(wide_kernel, 1, 1, 0, stream, data, reinterpret_cast<uint4*>(out));
}
void votes(int* out, const Stream& stream) {
  launch(votes_kernel, 1, 64, 0, stream, out);
}
void dynamic_shared(std::size_t bytes, int* out, const Stream& stream) {
  launch(dynamic_kernel, 1, 32, bytes, stream, bytes / sizeof(int) - 1, out);
}

}  // namespace rehearse::kernels::cuda::broken
