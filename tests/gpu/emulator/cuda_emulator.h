// The device side of CUDA for a host compiler: kernels of .cu files are compiled as plain C++ and run here, block after
// block, the threads of a block as fibers of one system thread. Names and meanings follow the CUDA C++ Programming
// Guide, "C++ Language Extensions"; only what our kernels use is here. What it checks beside the results:
//   __syncthreads that some threads do not reach, warp functions whose mask names threads that never come;
//   two threads touching one byte of shared or device memory, one of them writing, without a barrier between;
//   shared memory read before this block wrote it; accesses outside any allocation (the last three: checked.cpp).
// Threads, warps and blocks run in an order that changes from launch to launch (forward, backward, shuffled).
// What it cannot show: speed, the hardware's relaxed memory order, the limits of registers, and the approximate
// functions' last bits (__expf and others are computed exactly rounded or nearly so).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#undef __shared__
#define __shared__ static
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __constant__
#define __constant__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

namespace emulator {

struct Place {
  uint3 thread{}, block{};
  dim3 block_size, grid_size;
};
extern Place place;  // of the thread that runs

void* dynamic_shared();

// Runs every block of the grid, or records that (a stream that is captured). An error of the launch itself is returned;
// what the checks find is thrown as std::runtime_error at once, with the kernel's place.
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> thread);

enum class WarpOp : unsigned char { sync, shuffle, ballot, match };
// Waits until every lane of `mask` is here. shuffle: `value` becomes that of lane `from`; ballot: a bit for each lane
// whose value is not 0; match: for each whose value is ours. At most 8 bytes.
std::uint64_t warp_meet(WarpOp op, unsigned mask, std::uint64_t value, int from);
void block_barrier();
int block_vote(int predicate, int kind);  // 0: count, 1: and, 2: or
void check_atomic(const void* address, std::size_t bytes);

template <class T>
T shuffle(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_meet(WarpOp::shuffle, mask, bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline int lane() {
  const Place& p = place;
  return static_cast<int>((p.thread.x + p.block_size.x * (p.thread.y + p.block_size.y * p.thread.z)) % 32);
}

}  // namespace emulator

#define threadIdx (::emulator::place.thread)
#define blockIdx (::emulator::place.block)
#define blockDim (::emulator::place.block_size)
#define gridDim (::emulator::place.grid_size)
inline constexpr int warpSize = 32;

// --- barriers, votes, shuffles
inline void __syncthreads() {
  emulator::block_barrier();
}
inline int __syncthreads_count(int predicate) {
  return emulator::block_vote(predicate, 0);
}
inline int __syncthreads_and(int predicate) {
  return emulator::block_vote(predicate, 1);
}
inline int __syncthreads_or(int predicate) {
  return emulator::block_vote(predicate, 2);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) {
  emulator::warp_meet(emulator::WarpOp::sync, mask, 0, 0);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = emulator::lane();
  return emulator::shuffle(mask, value, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::lane(), from = lane - static_cast<int>(delta);
  return emulator::shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::lane(), from = lane + static_cast<int>(delta);
  return emulator::shuffle(mask, value, from > (lane | (width - 1)) ? lane : from);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = emulator::lane(), from = lane ^ lane_mask;
  return emulator::shuffle(mask, value, from > (lane | (width - 1)) ? lane : from);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      emulator::warp_meet(emulator::WarpOp::ballot, mask, static_cast<std::uint64_t>(predicate != 0), 0));
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return static_cast<unsigned>(emulator::warp_meet(emulator::WarpOp::match, mask, bits, 0));
}
inline unsigned __activemask() {
  return 0xFFFFFFFFU;
}
namespace emulator {
template <class T, class F>
T warp_reduce(unsigned mask, T value, F f) {
  T total{};
  bool first = true;
  for (int i = 0; i < 32; ++i) {  // every lane of the mask sees every other's value
    const T other = shuffle(mask, value, (mask >> i & 1U) ? i : lane());
    if (!(mask >> i & 1U)) continue;
    total = first ? other : f(total, other);
    first = false;
  }
  return total;
}
}  // namespace emulator
template <class T>
T __reduce_add_sync(unsigned mask, T v) {
  return emulator::warp_reduce(mask, v, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T __reduce_max_sync(unsigned mask, T v) {
  return emulator::warp_reduce(mask, v, [](T a, T b) { return a > b ? a : b; });
}
template <class T>
T __reduce_min_sync(unsigned mask, T v) {
  return emulator::warp_reduce(mask, v, [](T a, T b) { return a < b ? a : b; });
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

// --- memory
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldlu(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}
template <class T>
void __stwt(T* p, T v) {
  *p = v;
}

namespace emulator {
template <class T, class F>
__attribute__((no_sanitize("thread"))) T atomically(T* p, F f) {
  check_atomic(p, sizeof(T));
  T before;
  std::memcpy(&before, p, sizeof before);
  const T after = f(before);
  std::memcpy(p, &after, sizeof after);
  return before;
}
}  // namespace emulator
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T a) { return static_cast<T>(a + v); });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T a) { return static_cast<T>(a - v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T a) { return a > v ? a : v; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T a) { return a < v ? a : v; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T a) { return static_cast<T>(a | v); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T a) { return static_cast<T>(a & v); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return emulator::atomically(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return emulator::atomically(p, [expected, v](T a) { return a == expected ? v : a; });
}

// --- arithmetic
using std::isfinite;
using std::isinf;
using std::isnan;
inline float __expf(float x) {
  return std::exp(x);
}
inline float __exp2f(float x) {
  return std::exp2(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __log2f(float x) {
  return std::log2(x);
}
inline float __fdividef(float a, float b) {
  return std::fabs(b) > 0x1p126F ? (std::isinf(a) ? NAN : 0.0F * a) : a / b;
}
inline float __frcp_rn(float x) {
  return 1 / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float rsqrtf(float x) {
  return 1 / std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(x)));
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __saturatef(float x) {
  return std::fmin(std::fmax(x, 0.0F), 1.0F);
}
inline void sincospif(float x, float* sine, float* cosine) {
  const double angle = static_cast<double>(x) * 3.14159265358979323846;
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}
inline float __int_as_float(int x) {
  float f;
  std::memcpy(&f, &x, sizeof f);
  return f;
}
inline int __float_as_int(float x) {
  int i;
  std::memcpy(&i, &x, sizeof i);
  return i;
}
inline float __uint_as_float(unsigned x) {
  return __int_as_float(static_cast<int>(x));
}
inline unsigned __float_as_uint(float x) {
  return static_cast<unsigned>(__float_as_int(x));
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1U) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t both = static_cast<std::uint64_t>(b) << 32 | a;
  unsigned y = 0;
  for (int i = 0; i < 4; ++i) y |= static_cast<unsigned>(both >> (selector >> 4 * i & 7U) * 8 & 0xFF) << 8 * i;
  return y;
}
