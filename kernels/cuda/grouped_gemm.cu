// Products of groups of rows with a matrix each, in one kernel: a block a tile of 64 x 64 of the result. How many rows
// a group has is read on the device, so the host need not know: of rows that are counted there are as many blocks as
// could be needed, and those that have no tile end at once. Operands of 16 bits are multiplied by the matrix units, in
// steps of 32 through shared memory; others by fused multiply-adds in fp32. Both sum in fp32, along the summed
// dimension in its order, and round once.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/warp_matrix.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kTile = 64, kDepth = 32, kMmaThreads = 128, kPlainThreads = 256, kPlainDepth = 16;
constexpr int kStep = kDepth + 8;  // elements from a row of a tile in shared memory to the next

// A block's tile: C[rows, cols] += sum over depth of A(row, depth) B(col, depth), each of them at
// first + row * of_row + depth * of_depth of its operand.
struct Matrix2d {
  std::int64_t first, of_row, of_depth;
};
struct TileOfGroup {
  bool there = false;
  std::int64_t row = 0, col = 0, rows = 0, cols = 0, depth = 0;  // where it begins; of the group's whole product
  Matrix2d a{}, b{};
  std::int64_t c = 0;  // where the group's result begins; `cols` apart
};

__device__ std::int64_t rows_of_group(const GroupedShape& s, const float* loads, std::int64_t group) {
  return loads != nullptr ? static_cast<std::int64_t>(loads[group]) : s.rows / s.groups;
}

// blockIdx.x counts tiles of columns. Of weights' gradients blockIdx.y counts tiles of rows, blockIdx.z groups; of the
// others blockIdx.y counts tiles of rows of all groups.
__device__ TileOfGroup tile_of_block(const GroupedShape& s, const float* loads) {
  TileOfGroup t;
  t.col = static_cast<std::int64_t>(blockIdx.x) * kTile;
  std::int64_t first = 0, group = 0;  // of the group's rows
  if (s.part == GroupedPart::backward_weight) {
    group = blockIdx.z;
    for (std::int64_t g = 0; g < group; ++g) first += rows_of_group(s, loads, g);
    t.there = true;
    t.row = static_cast<std::int64_t>(blockIdx.y) * kTile;
    t.rows = s.n, t.cols = s.k, t.depth = rows_of_group(s, loads, group);
    t.a = {first * s.n, 1, s.n};
    t.b = {first * s.k, 1, s.k};
    t.c = group * s.n * s.k;
  } else {
    std::int64_t tile = blockIdx.y;
    for (; group < s.groups; ++group) {
      const std::int64_t rows = rows_of_group(s, loads, group), tiles = (rows + kTile - 1) / kTile;
      if (tile < tiles) {
        t.there = true;
        t.row = tile * kTile;
        t.rows = rows;
        break;
      }
      tile -= tiles;
      first += rows;
    }
    const bool forward = s.part == GroupedPart::forward;
    t.cols = forward ? s.n : s.k;
    t.depth = forward ? s.k : s.n;
    t.a = {first * t.depth, t.depth, 1};
    t.b = forward ? Matrix2d{group * s.n * s.k, s.k, 1} : Matrix2d{group * s.n * s.k, 1, s.k};
    t.c = first * t.cols;
  }
  t.there = t.there && t.row < t.rows && t.col < t.cols;
  return t;
}

// [kTile, kDeep] of a matrix from row `row` and depth `depth` on, zeros beyond its ends, through store(row, depth, x).
// Neighbouring threads read neighbouring elements.
template <int kThreads, int kDeep, class T, class Store>
__device__ void read_tile(const Source<T>& x, const Matrix2d& m, std::int64_t row, std::int64_t rows,
                          std::int64_t depth, std::int64_t depths, const Store& store) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDeep; i += kThreads) {
    const int r = m.of_depth == 1 ? i / kDeep : i % kTile, d = m.of_depth == 1 ? i % kDeep : i / kTile;
    const bool there = row + r < rows && depth + d < depths;
    store(r, d, there ? x.get(m.first + (row + r) * m.of_row + (depth + d) * m.of_depth) : 0.0F);
  }
}

__device__ void put_sum(const TileOfGroup& t, bool accumulate, const Target<AnyType>& c, std::int64_t row,
                        std::int64_t col, float sum) {
  if (row >= t.rows || col >= t.cols) return;
  const std::int64_t at = t.c + row * t.cols + col;
  c.put(at, accumulate ? c.get(at) + sum : sum);
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    grouped_plain(GroupedShape s, Source<T> a, Source<T> b, const float* loads, Target<AnyType> c) {
  __shared__ float as[kPlainDepth][kTile + 1], bs[kPlainDepth][kTile + 1];
  const TileOfGroup t = tile_of_block(s, loads);
  if (!t.there) return;
  const int across = static_cast<int>(threadIdx.x) % 16, down = static_cast<int>(threadIdx.x) / 16;
  float sum[4][4] = {};
  for (std::int64_t depth = 0; depth < t.depth; depth += kPlainDepth) {
    read_tile<kPlainThreads, kPlainDepth>(a, t.a, t.row, t.rows, depth, t.depth,
                                          [&](int r, int d, float x) { as[d][r] = x; });
    read_tile<kPlainThreads, kPlainDepth>(b, t.b, t.col, t.cols, depth, t.depth,
                                          [&](int r, int d, float x) { bs[d][r] = x; });
    __syncthreads();
    for (int d = 0; d < kPlainDepth; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += as[d][down + 16 * i] * bs[d][across + 16 * j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) put_sum(t, s.accumulate, c, t.row + down + 16 * i, t.col + across + 16 * j, sum[i][j]);
}

// Four warps, each with a quarter of the tile of 32 x 32: two by four results of an instruction.
template <class T>
__global__ void __launch_bounds__(kMmaThreads)
    grouped_mma(GroupedShape s, Source<T> a, Source<T> b, const float* loads, Target<AnyType> c) {
  __shared__ __align__(16) T as[kTile * kStep];
  __shared__ __align__(16) T bs[kTile * kStep];
  const TileOfGroup t = tile_of_block(s, loads);
  if (!t.there) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, two = lane % 4 * 2, row = warp / 2 * 32, col = warp % 2 * 32;
  float sum[2][4][4] = {};
  const auto pair = [](const T* tile, int r, int d) {
    unsigned bits;
    __builtin_memcpy(&bits, tile + r * kStep + d, sizeof bits);
    return bits;
  };
  for (std::int64_t depth = 0; depth < t.depth; depth += kDepth) {
    const auto keep = [](T* tile) {
      return [tile](int r, int d, float x) { tile[r * kStep + d] = static_cast<T>(x); };
    };
    read_tile<kMmaThreads, kDepth>(a, t.a, t.row, t.rows, depth, t.depth, keep(as));
    read_tile<kMmaThreads, kDepth>(b, t.b, t.col, t.cols, depth, t.depth, keep(bs));
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; d += 16) {
      unsigned of_a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row + 16 * i + g;
        of_a[i][0] = pair(as, r, d + two), of_a[i][1] = pair(as, r + 8, d + two);
        of_a[i][2] = pair(as, r, d + two + 8), of_a[i][3] = pair(as, r + 8, d + two + 8);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int r = col + 8 * j + g;
        const unsigned b0 = pair(bs, r, d + two), b1 = pair(bs, r, d + two + 8);
#pragma unroll
        for (int i = 0; i < 2; ++i) mma_16x8x16<T>(sum[i][j], of_a[i], b0, b1);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        put_sum(t, s.accumulate, c, t.row + row + 16 * i + g + k / 2 * 8, t.col + col + 8 * j + two + k % 2,
                sum[i][j][k]);
}

}  // namespace

void CudaDevice::grouped_gemm(const GroupedShape& s, In a, In b, const float* loads, Out c) {
  const bool weights = s.part == GroupedPart::backward_weight;
  const std::int64_t cols = s.part == GroupedPart::forward ? s.n : s.k;
  // Of each group a tile may be cut off.
  const std::int64_t down = weights ? ceil_div(s.n, kTile) : ceil_div(s.rows, kTile) + s.groups;
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, kTile)), static_cast<unsigned>(down),
                  static_cast<unsigned>(weights ? s.groups : 1));
  REHEARSE_REQUIRE(down <= 65535 && s.groups <= 65535, "a grouped product with too many rows or groups");
  by_type({a, b}, [&]<class T>() {
    if constexpr (sizeof(T) == 2)
      launch(grouped_mma<T>, grid, kMmaThreads, 0, stream_, s, Source<T>(a), Source<T>(b), loads, Target<AnyType>(c));
    else
      launch(grouped_plain<T>, grid, kPlainThreads, 0, stream_, s, Source<T>(a), Source<T>(b), loads,
             Target<AnyType>(c));
  });
}

}  // namespace rehearse::kernels::cuda
