#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "calibrate/cuda/load_kernels.h"
#include "kernels/cuda/launch.h"

namespace rehearse::calibrate::gpu {
namespace {

using kernels::cuda::launch;

constexpr int kThreads = 256;

// splitmix64 (Vigna): a well-mixed 64 bits of a counter.
__device__ std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}
// Box and Muller 1958.
__device__ float normal(std::uint64_t bits) {
  const float u = (static_cast<float>(bits >> 40) + 1.0F) * 0x1p-24F;
  const float v = static_cast<float>((bits >> 16) & 0xFFFFFF) * 0x1p-24F;
  return sqrtf(-2.0F * logf(u)) * cosf(6.2831853F * v);
}

__global__ void fill_kernel(void* data, DType type, std::int64_t n, std::int64_t range, std::uint64_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const std::uint64_t bits = mixed(seed * 0x632BE59BD9B4E019ULL + static_cast<std::uint64_t>(i));
    const auto whole = static_cast<std::int64_t>((bits >> 8) % static_cast<std::uint64_t>(range));
    if (type == DType::bf16) static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(normal(bits));
    if (type == DType::f16) static_cast<__half*>(data)[i] = __float2half(normal(bits));
    if (type == DType::f32) static_cast<float*>(data)[i] = fmaxf(fabsf(normal(bits)), 0.01F);
    if (type == DType::i32) static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(whole);
    if (type == DType::u8) static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(whole);
  }
}

__global__ void nothing_kernel() {}

// The background load runs on a GPU only: the emulator does one stream after the other, so nothing would ever tell it
// to stop.
#ifdef __CUDACC__
constexpr unsigned long long kLongestNs = 3'000'000'000ULL;  // should the host never say stop

__device__ unsigned long long nanoseconds() {
  unsigned long long t = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__global__ void holder_kernel(Signals* signals) {
  if (threadIdx.x != 0) return;
  signals->started[blockIdx.x] = 1;
  __threadfence_system();
  const unsigned long long began = nanoseconds();
  while (signals->stop == 0 && nanoseconds() - began < kLongestNs) __nanosleep(500);
}

__global__ void mover_kernel(uint4* from, uint4* to, std::int64_t chunks, double chunk_ns, Signals* signals,
                             unsigned long long* moved) {
  constexpr int kPerChunk = static_cast<int>(kMoverChunk / sizeof(uint4));
  __shared__ unsigned go;
  if (threadIdx.x == 0) {
    signals->started[blockIdx.x] = 1;
    __threadfence_system();
  }
  const unsigned long long began = nanoseconds();
  unsigned long long count = 0;
  while (true) {
    if (threadIdx.x == 0) {
      while (static_cast<double>(nanoseconds() - began) < static_cast<double>(count) * chunk_ns && signals->stop == 0)
        __nanosleep(100);
      go = signals->stop == 0 && nanoseconds() - began < kLongestNs;
    }
    __syncthreads();
    const bool goes_on = go != 0;
    __syncthreads();
    if (!goes_on) break;
    const std::int64_t chunk = static_cast<std::int64_t>((count * gridDim.x + blockIdx.x) % chunks) * kPerChunk;
    for (int i = threadIdx.x; i < kPerChunk; i += kThreads) to[chunk + i] = from[chunk + i];
    ++count;
  }
  if (threadIdx.x == 0) moved[blockIdx.x] = count;
}
#endif

}  // namespace

void fill_random(void* data, DType type, std::int64_t elements, std::int64_t range, std::uint64_t seed,
                 kernels::cuda::Stream& stream) {
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks = (elements + kThreads - 1) / kThreads;
  launch(fill_kernel, dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kThreads), 0,
         stream, data, type, elements, range > 0 ? range : 1, seed);
}

void launch_nothing(kernels::cuda::Stream& stream) {
  launch(nothing_kernel, dim3(1), dim3(32), 0, stream);
}

#ifdef __CUDACC__
void launch_holder(int blocks, int shared_bytes, Signals* signals, kernels::cuda::Stream& stream) {
  launch(holder_kernel, dim3(static_cast<unsigned>(blocks)), dim3(32), static_cast<std::size_t>(shared_bytes), stream,
         signals);
}

void launch_mover(void* buffer, std::int64_t bytes, double rate, Signals* signals, unsigned long long* moved,
                  kernels::cuda::Stream& stream) {
  auto* const from = static_cast<uint4*>(buffer);
  const std::int64_t half = bytes / 2 / kMoverChunk;
  const double chunk_ns = 2.0 * static_cast<double>(kMoverChunk) * kMoverBlocks / rate * 1e9;
  launch(mover_kernel, dim3(kMoverBlocks), dim3(kThreads), 0, stream, from,
         from + half * (kMoverChunk / static_cast<std::int64_t>(sizeof(uint4))), half, chunk_ns, signals, moved);
}
#else
void launch_holder(int, int, Signals*, kernels::cuda::Stream&) {}
void launch_mover(void*, std::int64_t, double, Signals*, unsigned long long*, kernels::cuda::Stream&) {}
#endif

}  // namespace rehearse::calibrate::gpu
