// What kernels/cuda/warp_matrix.h names, in plain loops: matrix instructions of a warp, and asynchronous copies that
// take place only when they are waited for. Fragment layouts and meanings are stated there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "cuda_emulator.h"

namespace emulator {

// What stands next to the kernel's own memory is no business of the emulator's checks.
#define REHEARSE_UNCHECKED __attribute__((no_sanitize("thread"), noinline))

inline int thread_of_block() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

// Where the lanes of a warp show each other what they hold. One block runs at a time.
inline std::uint64_t shown[1024][4];
REHEARSE_UNCHECKED inline void show(int word, std::uint64_t value) {
  shown[thread_of_block()][word] = value;
}
REHEARSE_UNCHECKED inline std::uint64_t seen(int lane, int word) {
  return shown[thread_of_block() / 32 * 32 + lane][word];
}

template <class T>
float element(std::uint64_t words, int word, int high) {
  const auto bits = static_cast<std::uint16_t>(words >> (32 * word + 16 * high));
  if constexpr (std::is_same_v<T, __half>) return __half2float(__half(__half_raw{bits}));
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

template <class T>
REHEARSE_UNCHECKED void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const int own = lane(), g = own / 4, t = own % 4;
  const auto* warp = shown + thread_of_block() / 32 * 32;
  show(0, a[0] | std::uint64_t{a[1]} << 32);
  show(1, a[2] | std::uint64_t{a[3]} << 32);
  show(2, b0 | std::uint64_t{b1} << 32);
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const float left = element<T>(warp[row % 8 * 4 + k % 8 / 2][k / 8], row / 8, k % 2);
      const float right = element<T>(warp[column * 4 + k % 8 / 2][2], k / 8, k % 2);
      sum += left * right;
    }
    c[i] += sum;
  }
  __syncwarp();
}

// A copy takes place when it is waited for: until then its target is as if not written, and a missing wait shows.
struct PendingCopy {
  char* to;
  const char* from;
  int bytes, group;
};
struct PendingCopies {
  PendingCopy copies[256];
  int count, groups;  // groups committed
};
inline PendingCopies pending[1024];

REHEARSE_UNCHECKED inline void begin_copy(void* to, const void* from, int bytes) {
  PendingCopies& mine = pending[thread_of_block()];
  if (mine.count == 256) throw std::logic_error("more asynchronous copies under way than the emulator keeps");
  __builtin_memset(to, 0xFF, static_cast<std::size_t>(bytes));
  mine.copies[mine.count++] = {static_cast<char*>(to), static_cast<const char*>(from), bytes, mine.groups};
}
REHEARSE_UNCHECKED inline void commit() {
  ++pending[thread_of_block()].groups;
}
// The next copy of all groups but the last `left`; nothing is copied if bytes is 0.
REHEARSE_UNCHECKED inline PendingCopy take_copy(int left) {
  PendingCopies& mine = pending[thread_of_block()];
  for (int i = 0; i < mine.count; ++i) {
    if (mine.copies[i].group >= mine.groups - left) continue;
    const PendingCopy first = mine.copies[i];
    mine.copies[i] = mine.copies[--mine.count];
    return first;
  }
  return {};
}
inline void end_copies(int left) {
  for (PendingCopy c = take_copy(left); c.bytes > 0; c = take_copy(left))
    for (int i = 0; i < c.bytes; ++i) c.to[i] = c.from ? c.from[i] : '\0';
}

template <bool kTransposed>
void load_matrices(unsigned (&r)[4], const void* row) {
  const int own = lane(), g = own / 4, t = own % 4;
  show(3, reinterpret_cast<std::uintptr_t>(row));
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const auto row_of = [&](int j) { return reinterpret_cast<const std::uint16_t*>(seen(8 * i + j, 3)); };
    const std::uint16_t low = kTransposed ? row_of(2 * t)[g] : row_of(g)[2 * t];
    const std::uint16_t high = kTransposed ? row_of(2 * t + 1)[g] : row_of(g)[2 * t + 1];
    r[i] = low | static_cast<unsigned>(high) << 16;
  }
  __syncwarp();
}

}  // namespace emulator

// The names of kernels/cuda/warp_matrix.h.
namespace rehearse::kernels::cuda {

template <class T>
void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  ::emulator::mma<T>(c, a, b0, b1);
}
template <bool kTransposed>
void load_matrices(unsigned (&r)[4], const void* row) {
  ::emulator::load_matrices<kTransposed>(r, row);
}
template <int kBytes>
void copy_async(void* shared, const void* global, bool there) {
  ::emulator::begin_copy(shared, there ? global : nullptr, kBytes);
}
inline void commit_copies() {
  ::emulator::commit();
}
template <int kLeft>
void wait_copies() {
  ::emulator::end_copies(kLeft);
}
inline float fast_exp2(float x) {
  return std::exp2(x);
}

}  // namespace rehearse::kernels::cuda
