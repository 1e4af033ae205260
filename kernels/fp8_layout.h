// How copies of operands in few bits lie in memory.
#pragma once

#include <cstdint>

namespace rehearse::kernels {

// An 8-bit copy of a matrix [rows, cols], and where the scales of its blocks lie (sim/base/fp8.h has the formats).
// Without blocks the elements are row-major, or those of the transpose (`columns`), and have one scale. With blocks
// they are row-major. A block is `block` elements of a row: behind each row's elements come its scales. Or of a column:
// behind each `block` rows come the scales of every column. So what is put together of several copies' rows (columns:
// of `block` rows) is a copy too. The columns are a multiple of `block`, and so are rows but of a copy by columns,
// whose last block may have fewer.
struct Fp8Layout {
  std::int64_t rows = 0, cols = 0;
  bool columns = false;
  std::int64_t block = 0;          // elements of a scale, of rows' scales all of a row or column; 0: no blocks
  bool powers = false;             // blocks' scales are bytes, powers of two (e8m0); else fp32
  bool square = false;             // blocks of `block` x `block`; each row, or column, has their scales all the same
  const float* inverse = nullptr;  // without blocks, or in 4 bits: what all elements are multiplied by, f32 [1]
  // In 4 bits two elements are a byte, the first one in the lower half, and a block's scale is an e4m3. Of a copy by
  // columns that does not share its scales (`square`), each block of a column is a random Hadamard transform of it.
  std::int64_t packed = 1;
  bool at_random = false;  // a cast in 4 bits rounds up or down by chance, as near either is
  std::uint64_t draw = 0;  // which chance

  std::int64_t scale_bytes() const { return block == 0 ? 0 : powers || packed == 2 ? 1 : 4; }
  std::int64_t bytes() const {
    if (block == 0) return rows * cols;
    return rows * cols / packed + (columns ? (rows + block - 1) / block * cols : rows * cols / block) * scale_bytes();
  }
};
// Of a cast with one scale for all elements: the scale makes `largest` the largest number of the format (1 where it is
// 0 or no number). amax, if there, grows to the largest absolute value of what is cast.
struct Fp8Scale {
  const float* largest = nullptr;
  float* amax = nullptr;
  float* inverse = nullptr;  // what the copy's elements are multiplied by
};

}  // namespace rehearse::kernels
