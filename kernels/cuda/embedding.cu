// Token embeddings. Forward gathers rows; bytes it must move: y twice (the rows read, the output), and the ids.
// Backward adds each token's gradient to its row of the table, tokens of one row in their order, without atomics: the
// tokens of a section are ranked by (row, place), so that those of a row stand side by side, and each row is summed by
// one warp, or by a block where a token is frequent. Bytes it must move: dy, and the rows met, twice.
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    embedding_forward_kernel(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                             bool whole, const std::int32_t* ids, Source<T> table, Target<T> y) {
  over_rows(tokens, cols, whole, [&]<class Access>(Access, std::int64_t token, const Chunk& c) {
    const std::int64_t row = ids[token] - first_row;
    float v[kChunk] = {};
    if (row >= 0 && row < rows) Access::values(table, Access::load(table, in_row(c, row, cols)), v);
    Access::store(y, in_row(c, token, cols), v);
  });
}

// Ranking compares every token of a section with every other: its cost grows with the section, so that long inputs are
// taken in sections.
constexpr std::int64_t kSection = 8192;
constexpr int kRanked = 32, kSlices = 8;  // tokens a block ranks, and the parts of the section it counts side by side

// Rows that are not here come last.
__device__ inline int row_key(std::int32_t id, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t row = id - first_row;
  return row >= 0 && row < rows ? static_cast<int>(row) : 0x7FFFFFFF;
}

struct Ranked {
  int row, token;
};

// sorted[how many tokens come before] = {row, token}.
__global__ void __launch_bounds__(kRanked* kSlices)
    rank_tokens(int tokens, std::int64_t first_row, std::int64_t rows, const std::int32_t* ids, Ranked* sorted) {
  __shared__ int counts[kSlices][kRanked];
  const int token = static_cast<int>(blockIdx.x) * kRanked + static_cast<int>(threadIdx.x);
  const int key = token < tokens ? row_key(ids[token], first_row, rows) : 0;
  int before = 0;
  if (token < tokens) {
    for (int other = static_cast<int>(threadIdx.y); other < tokens; other += kSlices) {
      const int k = row_key(ids[other], first_row, rows);
      before += k < key || (k == key && other < token);
    }
  }
  counts[threadIdx.y][threadIdx.x] = before;
  __syncthreads();
  if (threadIdx.y != 0 || token >= tokens) return;
  for (int s = 1; s < kSlices; ++s) before += counts[s][threadIdx.x];
  sorted[before] = {key, token};
}

constexpr int kWarps = 8, kAlone = 32;  // a warp sums up to kAlone tokens of a row alone

// How many tokens from `place` on have the same row, up to `most`; every lane gets it.
__device__ inline int run_length(const Ranked* sorted, int tokens, int place, int most) {
  const int row = sorted[place].row, lane = static_cast<int>(threadIdx.x);
  for (int done = 0; done < most; done += 32) {
    const int other = place + done + lane;
    const bool same = other < tokens && sorted[other].row == row;
    const unsigned differ = ~__ballot_sync(0xFFFFFFFFU, same);
    if (differ != 0) return done + __ffs(static_cast<int>(differ)) - 1;
  }
  return most;
}

// Sums rows of dy for places first, first + step, ... below end.
template <class Access, class T>
__device__ void sum_tokens(const Source<T>& dy, const Ranked* sorted, const Chunk& c, std::int64_t cols, int first,
                           int end, int step, float (&total)[kChunk]) {
#pragma unroll 4
  for (int place = first; place < end; place += step) {
    float v[kChunk];
    Access::values(dy, Access::load(dy, in_row(c, sorted[place].token, cols)), v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) total[i] += v[i];
  }
}

template <class Access>
__device__ void add_to_row(const Target<AnyType>& d_table, const Chunk& at, const float (&total)[kChunk]) {
  float v[kChunk];
  Access::values(d_table, Access::load(d_table, at), v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] += total[i];
  Access::store(d_table, at, v);
}

// Warp w of block (tile, b) looks at place 8 b + w: if a row's tokens begin there it sums them, for 256 columns.
template <class Access, class T>
__device__ void add_runs(int tokens, std::int64_t cols, const Source<T>& dy, const Ranked* sorted,
                         const Target<AnyType>& d_table, float (&sums)[kWarps][kChunk][32], int (&lengths)[kWarps]) {
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const Chunk columns = clip((static_cast<std::int64_t>(blockIdx.x) * 32 + lane) * kChunk, 0, cols);
  const bool mine = columns.at < cols;
  const int block_place = static_cast<int>(blockIdx.y) * kWarps, place = block_place + warp;
  int length = 0;
  if (place < tokens && sorted[place].row != 0x7FFFFFFF && (place == 0 || sorted[place - 1].row != sorted[place].row))
    length = run_length(sorted, tokens, place, tokens - place);
  if (length > 0 && length <= kAlone && mine) {
    float total[kChunk] = {};
    sum_tokens<Access>(dy, sorted, columns, cols, place, place + length, 1, total);
    add_to_row<Access>(d_table, in_row(columns, sorted[place].row, cols), total);
  }
  if (lane == 0) lengths[warp] = length;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) {  // long runs, by the whole block
    if (lengths[w] <= kAlone) continue;
    const int first = block_place + w;
    float total[kChunk] = {};
    if (mine) sum_tokens<Access>(dy, sorted, columns, cols, first + warp, first + lengths[w], kWarps, total);
    for (int i = 0; i < kChunk; ++i) sums[warp][i][lane] = total[i];
    __syncthreads();
    if (warp == 0 && mine) {
      for (int other = 1; other < kWarps; ++other)
        for (int i = 0; i < kChunk; ++i) total[i] += sums[other][i][lane];
      add_to_row<Access>(d_table, in_row(columns, sorted[first].row, cols), total);
    }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    embedding_backward_kernel(int tokens, std::int64_t cols, bool whole, Source<T> dy, const Ranked* sorted,
                              Target<AnyType> d_table) {
  __shared__ float sums[kWarps][kChunk][32];
  __shared__ int lengths[kWarps];
  if (whole) {
    add_runs<Whole>(tokens, cols, dy, sorted, d_table, sums, lengths);
  } else {
    add_runs<Piecewise>(tokens, cols, dy, sorted, d_table, sums, lengths);
  }
}

}  // namespace

void CudaDevice::embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                   const std::int32_t* ids, In table, Out y) {
  const auto [grid, block] = row_grid(tokens, cols);
  by_type({table, y}, [&]<class T>() {
    launch(embedding_forward_kernel<T>, grid, block, 0, stream_, tokens, rows, cols, first_row,
           whole_rows(cols, {table, y}), ids, Source<T>(table), Target<T>(y));
  });
}

void CudaDevice::embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                    In dy, const std::int32_t* ids, Out d_table) {
  auto* sorted = workspace<Ranked>(std::min(tokens, kSection));
  const bool whole = whole_rows(cols, {dy, d_table});
  for (std::int64_t begin = 0; begin < tokens; begin += kSection) {
    const auto count = static_cast<int>(std::min(tokens - begin, kSection));
    const In section{static_cast<const std::byte*>(dy.data) + begin * cols * size_of(dy.type), dy.type};
    launch(rank_tokens, grid_of(ceil_div(count, kRanked)), dim3(kRanked, kSlices), 0, stream_, count, first_row, rows,
           ids + begin, sorted);
    const dim3 grid(grid_of(ceil_div(cols, 32 * kChunk)).x, static_cast<unsigned>(ceil_div(count, kWarps)));
    by_type({dy}, [&]<class T>() {
      launch(embedding_backward_kernel<T>, grid, dim3(32, kWarps), 0, stream_, count, cols, whole, Source<T>(section),
             static_cast<const Ranked*>(sorted), Target<AnyType>(d_table));
    });
  }
}

}  // namespace rehearse::kernels::cuda
