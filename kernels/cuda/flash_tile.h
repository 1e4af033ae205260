// What the flash kernels on the matrix units share: tiles of 16-bit elements in shared memory, products of a warp with
// them, dropout masks. Rows of a tile are padded by 16 bytes: the eight rows that one ldmatrix reads then lie in eight
// different groups of banks, for every width that is a multiple of 16.
#pragma once

#include <cstdint>

#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp_matrix.h"
#include "kernels/dropout.h"

namespace rehearse::kernels::cuda {

inline constexpr int kFlashThreads = 128, kFlashWarps = 4;
inline constexpr float kLog2E = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

template <int D>
constexpr int tile_row() {
  return D + 8;  // elements between rows
}

// Rows [first, first + kRows) of a matrix whose rows are `stride` apart, head_dim wide; zeros from row `limit` and from
// column head_dim on. All threads of the block; asynchronous.
template <class T, int D, int kRows>
__device__ __forceinline__ void load_tile(T* to, const T* from, std::int64_t stride, int first, int limit,
                                          int head_dim) {
  // A thread's pieces are the same columns of rows kStep apart where 128 threads make whole rows; one pointer that
  // moves on keeps the addresses out of registers.
  constexpr int kPieces = D / 8, kStep = kFlashThreads / kPieces;
  const int thread = static_cast<int>(threadIdx.x);
  int row = thread / kPieces;
  const int column = thread % kPieces * 8;
  if (kFlashThreads % kPieces != 0 && row >= kStep) return;
  const T* source = from + (first + row) * stride + column;
  const bool inside = column < head_dim;
#pragma unroll 4
  for (int done = 0; done < kRows; done += kStep) {
    if (kRows % kStep != 0 && row >= kRows) break;
    const bool there = inside && first + row < limit;
    copy_async<16>(to + row * tile_row<D>() + column, there ? source : from, there);
    row += kStep;
    source += kStep * stride;
  }
}

// A fragment of rows [16 i, 16 i + 16) of `tile` (its first row), columns [column, column + 16).
template <class T, int D>
__device__ __forceinline__ void load_left(unsigned (&a)[4], const T* tile, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices<false>(a, tile + lane % 16 * tile_row<D>() + column + lane / 16 * 8);
}
// B fragments (b0, b1 of two column tiles) of the transpose of a tile: columns are its rows [0, 16), rows its columns
// [column, column + 16).
template <class T, int D>
__device__ __forceinline__ void load_right_transposed(unsigned (&b)[4], const T* tile, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices<false>(b, tile + (lane % 8 + lane / 16 * 8) * tile_row<D>() + column + lane / 8 % 2 * 8);
}
// B fragments (b0, b1 of two column tiles) of a tile: rows [0, 16), columns [column, column + 16).
template <class T, int D>
__device__ __forceinline__ void load_right(unsigned (&b)[4], const T* tile, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices<true>(b, tile + lane % 16 * tile_row<D>() + column + lane / 16 * 8);
}

template <int kM, int kN>
__device__ __forceinline__ void set_zero(float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
}
// sums[16 kM, 8 kN] += left[16 kM, 16] right[8 kN, columns [column, column + 16)]^T; left in registers.
template <class T, int D, int kM, int kN>
__device__ __forceinline__ void multiply_columns(float (&sums)[kM][kN][4], const unsigned (&left)[kM][4],
                                                 const T* right, int column) {
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    unsigned b[4];
    load_right_transposed<T, D>(b, right + 8 * n * tile_row<D>(), column);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      mma_16x8x16<T>(sums[m][n], left[m], b[0], b[1]);
      mma_16x8x16<T>(sums[m][n + 1], left[m], b[2], b[3]);
    }
  }
}

// sums[16 kM, 8 kN] = left[16 kM, D] right[8 kN, D]^T, both in shared memory.
template <class T, int D, int kM, int kN>
__device__ __forceinline__ void multiply_transposed(float (&sums)[kM][kN][4], const T* left, const T* right) {
  set_zero(sums);
#pragma unroll
  for (int column = 0; column < D; column += 16) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_left<T, D>(a[m], left + 16 * m * tile_row<D>(), column);
    multiply_columns<T, D>(sums, a, right, column);
  }
}

// A fragments of left[16 kM, D], by column tile: what is multiplied with many tiles is read from shared memory once.
template <class T, int D, int kM>
__device__ __forceinline__ void load_fragments(unsigned (&left)[D / 16][kM][4], const T* tile) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int m = 0; m < kM; ++m) load_left<T, D>(left[k][m], tile + 16 * m * tile_row<D>(), 16 * k);
}
// The same product with `left` in registers.
template <class T, int D, int kM, int kN>
__device__ __forceinline__ void multiply_transposed(float (&sums)[kM][kN][4], const unsigned (&left)[D / 16][kM][4],
                                                    const T* right) {
  set_zero(sums);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) multiply_columns<T, D>(sums, left[k], right, 16 * k);
}

// sums[16 kM, kOut] += p[16 kM, 8 kN] right[8 kN, columns [first_column, first_column + kOut)]: p in registers, as it
// came out of multiply_transposed, rounded to T.
template <class T, int D, int kOut, int kM, int kN>
__device__ __forceinline__ void multiply_add(float (&sums)[kM][kOut / 8][4], const float (&p)[kM][kN][4],
                                             const T* right, int first_column) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      a[m][0] = pack_pair<T>(p[m][2 * k][0], p[m][2 * k][1]);
      a[m][1] = pack_pair<T>(p[m][2 * k][2], p[m][2 * k][3]);
      a[m][2] = pack_pair<T>(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
      a[m][3] = pack_pair<T>(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kOut / 8; n += 2) {
      unsigned b[4];
      load_right<T, D>(b, right + 16 * k * tile_row<D>(), first_column + 8 * n);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_16x8x16<T>(sums[m][n], a[m], b[0], b[1]);
        mma_16x8x16<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Writes sums[16, kOut] (of one warp) as T to rows [0, rows) of `to`, columns from first_column and below head_dim.
// `staging`: 16 rows of shared memory that only this warp uses.
template <class T, int D, int kOut>
__device__ __forceinline__ void store_rows(const float (&sums)[kOut / 8][4], T* staging, T* to, std::int64_t stride,
                                           int rows, int first_column, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kOut / 8; ++n) {
    *reinterpret_cast<unsigned*>(staging + g * tile_row<D>() + 8 * n + 2 * t) = pack_pair<T>(sums[n][0], sums[n][1]);
    *reinterpret_cast<unsigned*>(staging + (g + 8) * tile_row<D>() + 8 * n + 2 * t) =
        pack_pair<T>(sums[n][2], sums[n][3]);
  }
  __syncwarp();
  constexpr int kPieces = kOut / 8;
#pragma unroll 4
  for (int i = lane; i < 16 * kPieces; i += 32) {
    const int row = i / kPieces, column = i % kPieces * 8;
    if (row < rows && first_column + column < head_dim)
      *reinterpret_cast<uint4*>(to + row * stride + first_column + column) =
          *reinterpret_cast<const uint4*>(staging + row * tile_row<D>() + column);
  }
  __syncwarp();
}

// f.operator()<D>() for the narrowest tiles that hold head_dim.
template <class F>
void flash_by_width(int head_dim, F&& f) {
  if (head_dim <= 32) return f.template operator()<32>();
  if (head_dim <= 64) return f.template operator()<64>();
  if (head_dim <= 80) return f.template operator()<80>();
  if (head_dim <= 96) return f.template operator()<96>();
  if (head_dim <= 128) return f.template operator()<128>();
  f.template operator()<256>();
}

// Draws of one call's dropout for one head of one sequence.
struct Dropper {
  std::uint64_t key, sequence;
  std::int64_t first_position, first_column;
  std::uint32_t threshold;

  __device__ Dropper(const FlashCall& f, int batch, int head)
      : key(mix_key(mix_key(f.drop.seed, static_cast<std::uint64_t>(f.drop.step->step)), f.drop.site)),
        sequence(static_cast<std::uint64_t>(f.drop.step->first_sequence + f.drop.first_sequence + batch)),
        first_position(f.drop.first_position),
        first_column((f.drop.first_head + head) * f.seq),
        threshold(f.drop.threshold) {}

  // Bit c: whether column 8 group + c of this query's row is kept.
  __device__ __forceinline__ unsigned group(int query, std::int64_t group_of_columns) const {
    return kept_of_group(key, sequence, first_position + query, group_of_columns, threshold);
  }

  // Bit c: whether `query` keeps key first_key + c. The four lanes of a quad ask together, for one query: each draws a
  // quarter, and where columns do not start a group, all draw the piece that is left over.
  __device__ __forceinline__ unsigned quad(int query, int first_key) const {
    const std::int64_t column = first_column + first_key, first_group = column / kDropoutGroup;
    const auto skip = static_cast<unsigned>(column % kDropoutGroup);
    const unsigned t = threadIdx.x % 4;
    unsigned bits = group(query, first_group + t) << (8 * t);
    bits |= __shfl_xor_sync(0xFFFFFFFFU, bits, 1);
    bits |= __shfl_xor_sync(0xFFFFFFFFU, bits, 2);
    if (skip == 0) return bits;
    return bits >> skip | group(query, first_group + 4) << (32 - skip);
  }

  // The same for kKeys (at most 32) keys, by one lane alone.
  template <int kKeys>
  __device__ __forceinline__ unsigned alone(int query, int first_key) const {
    const std::int64_t column = first_column + first_key, first_group = column / kDropoutGroup;
    const auto skip = static_cast<unsigned>(column % kDropoutGroup);
    std::uint64_t bits = 0;
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) bits |= static_cast<std::uint64_t>(group(query, first_group + i)) << (8 * i);
    if (skip == 0) return static_cast<unsigned>(bits);
    bits |= static_cast<std::uint64_t>(group(query, first_group + kKeys / 8)) << kKeys;
    return static_cast<unsigned>(bits >> skip);
  }
};

}  // namespace rehearse::kernels::cuda
