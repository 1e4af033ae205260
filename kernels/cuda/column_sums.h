// Sums of the columns of [rows, cols], added to what is there, in two launches: blocks sum tiles of 256 columns over
// slabs of rows into a table, then the slabs of a column are added in order. How rows are cut depends on the shape
// alone, so the result does too.
#pragma once

#include <algorithm>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {

inline constexpr int kSumWarps = 8, kTile = 32 * kChunk;

// Terms::add<Access>(row, chunk, total) adds what a row gives for the columns of a chunk of [rows, cols].
// partial[(slab * kSums + s) * cols + column].
template <int kSums, class Terms>
__global__ void __launch_bounds__(32 * kSumWarps)
    slab_sums(std::int64_t rows, std::int64_t cols, std::int64_t slab_rows, bool whole, Terms terms, float* partial) {
  __shared__ float sums[kSums][kSumWarps][kTile];
  const unsigned lane = threadIdx.x, warp = threadIdx.y;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const Chunk columns = clip(tile + lane * kChunk, 0, cols);
  const std::int64_t first = blockIdx.y * slab_rows, end = first + slab_rows < rows ? first + slab_rows : rows;
  float total[kSums][kChunk] = {};
  if (columns.at < cols) {
    if (whole) {
#pragma unroll 4
      for (std::int64_t row = first + warp; row < end; row += kSumWarps)
        terms.template add<Whole>(row, in_row(columns, row, cols), total);
    } else {
      for (std::int64_t row = first + warp; row < end; row += kSumWarps)
        terms.template add<Piecewise>(row, in_row(columns, row, cols), total);
    }
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sums[s][warp][i * 32 + lane] = total[s][i];  // a bank a lane
  __syncthreads();
  // Thread (lane, warp) takes element `warp` of lane's chunk.
  const std::int64_t column = tile + lane * kChunk + warp;
  if (column >= cols) return;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) all += sums[s][w][warp * 32 + lane];
    partial[(static_cast<std::int64_t>(blockIdx.y) * kSums + s) * cols + column] = all;
  }
}
static_assert(kSumWarps == kChunk);

struct Sums {
  Target<AnyType> to[2];
};

template <int kSums>
__global__ void __launch_bounds__(32 * kSumWarps)
    add_slabs(std::int64_t cols, std::int64_t slabs, const float* partial, Sums out) {
  __shared__ float sums[kSumWarps][32];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const unsigned s = blockIdx.y;
  float total = 0;
  if (column < cols) {
#pragma unroll 4
    for (std::int64_t slab = threadIdx.y; slab < slabs; slab += kSumWarps)
      total += partial[(slab * kSums + s) * cols + column];
  }
  sums[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
#pragma unroll
  for (int w = 1; w < kSumWarps; ++w) total += sums[w][threadIdx.x];
  // An index known at compile time: the arguments stay where they are.
  if (s == 0) out.to[0].put(column, out.to[0].get(column) + total);
  if (s == 1) out.to[1].put(column, out.to[1].get(column) + total);
}

struct ColumnSums {
  const Stream& stream;
  std::int64_t rows, cols;
  bool whole;  // whole_rows of what the terms read
  float* table;
  std::size_t table_bytes;

  // About a thousand blocks, of at least 64 rows.
  template <int kSums>
  std::int64_t slabs() const {
    const std::int64_t tiles = ceil_div(cols, kTile), room = static_cast<std::int64_t>(table_bytes / sizeof(float));
    const std::int64_t wanted = std::clamp<std::int64_t>(1024 / tiles, 1, ceil_div(rows, 64));
    return std::min(wanted, room / (cols * kSums));
  }
  template <int kSums, class Terms>
  void run(const Terms& terms, std::initializer_list<Out> out) const {
    if (rows == 0 || cols == 0) return;
    std::int64_t count = slabs<kSums>();
    REHEARSE_REQUIRE(count > 0, "sums of " + std::to_string(cols) + " columns do not fit the workspace");
    const std::int64_t slab_rows = ceil_div(rows, count);
    count = ceil_div(rows, slab_rows);
    Sums to;
    std::copy(out.begin(), out.end(), to.to);
    launch(slab_sums<kSums, Terms>, dim3(grid_of(ceil_div(cols, kTile)).x, static_cast<unsigned>(count)),
           dim3(32, kSumWarps), 0, stream, rows, cols, slab_rows, whole, terms, table);
    launch(add_slabs<kSums>, dim3(grid_of(ceil_div(cols, 32)).x, kSums), dim3(32, kSumWarps), 0, stream, cols, count,
           static_cast<const float*>(table), to);
  }
};

}  // namespace rehearse::kernels::cuda
