// Sums down the columns of a matrix that is read once, row by row.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {

// out[c] += sum over rows of term(row, c, tag), c in [begin, end), where term gives a float or the Vec of eight columns
// from c, by the type of the tag (get in simd.h). Rows are summed in blocks of 64, so that the error grows with the
// number of blocks.
template <class Term>
void add_column_sums(std::int64_t rows, std::int64_t begin, std::int64_t end, float* out, const Term& term) {
  constexpr std::int64_t kWidth = 1024, kRows = 64;
  std::array<float, kWidth> block;
  for (std::int64_t first = begin; first < end; first += kWidth) {
    const std::int64_t width = std::min(kWidth, end - first), vectors = width / kLanes * kLanes;
    for (std::int64_t row = 0; row < rows; row += kRows) {
      block.fill(0);
      for (std::int64_t r = row; r < std::min(rows, row + kRows); ++r) {
        for (std::int64_t c = 0; c < vectors; c += kLanes) {
          store(block.data() + c, load(block.data() + c) + term(r, first + c, Vec{}));
        }
        for (std::int64_t c = vectors; c < width; ++c) block[static_cast<std::size_t>(c)] += term(r, first + c, 0.0f);
      }
      for (std::int64_t c = 0; c < width; ++c) out[first + c] += block[static_cast<std::size_t>(c)];
    }
  }
}

}  // namespace rehearse::kernels::cpu
