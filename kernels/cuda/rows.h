// Kernels over [rows, cols] operands whose work depends on the row: threads of a block are (across, down): `across`
// take the chunks of a row in turn, `down` take rows in turn, so that no thread divides to find its place. A chunk is
// eight columns from a multiple of eight, as dropout draws its numbers (kernels/dropout.h).
#pragma once

#include "kernels/cuda/elements.h"

namespace rehearse::kernels::cuda {

inline constexpr int kRowThreads = 256;

struct RowGrid {
  dim3 grid, block;
};
// One pass over the rows: as many blocks as they need, each thread taking at most four chunks of a row.
inline RowGrid row_grid(std::int64_t rows, std::int64_t cols) {
  const std::int64_t chunks = ceil_div(cols, kChunk);
  unsigned across = 32;
  while (across < kRowThreads && across * 4 < chunks) across *= 2;
  const unsigned down = kRowThreads / across;
  return {grid_of(ceil_div(rows, down)), dim3(across, down)};
}

// Whether every chunk of every row of the operands that are there can be taken whole.
inline bool whole_rows(std::int64_t cols, std::initializer_list<In> operands) {
  bool whole = cols % kChunk == 0;
  for (const In& o : operands) whole = whole && reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0;
  return whole;
}

// body(Access, row, chunk of columns) for every chunk of the block's rows. `whole_rows`: operands are aligned and rows
// begin at multiples of eight elements.
template <class Body>
__device__ void over_rows(std::int64_t rows, std::int64_t cols, bool whole_rows, Body&& body) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  for (std::int64_t col = static_cast<std::int64_t>(threadIdx.x) * kChunk; col < cols;
       col += static_cast<std::int64_t>(blockDim.x) * kChunk) {
    if (whole_rows) {
      body(Whole{}, row, Chunk{col, 0, kChunk});
    } else {
      body(Piecewise{}, row, clip(col, 0, cols));
    }
  }
}

// The chunk of `columns` as one of a [rows, cols] operand.
__device__ inline Chunk in_row(const Chunk& columns, std::int64_t row, std::int64_t cols) {
  return {row * cols + columns.at, columns.first, columns.last};
}

}  // namespace rehearse::kernels::cuda
