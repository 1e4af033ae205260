// The random words of a row of elements, as kernels/dropout.h defines them, many draws at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/dropout.h"

namespace rehearse::kernels::cpu {

// words[4 * i + w] = word w of the draw of group first_group + i. groups is a multiple of 4.
void dropout_words(std::uint64_t key, std::int64_t sequence, std::int64_t position, std::int64_t first_group,
                   std::int64_t groups, std::uint32_t* words);

// What a dropout does to the rows it is applied to.
struct DropoutRow {
  std::uint32_t threshold;
  float kept_scale;  // 1 / (1 - probability)

  explicit DropoutRow(double probability)
      : threshold(dropout_threshold(probability)), kept_scale(static_cast<float>(1 / (1 - probability))) {}

  // body(offset, count, words) for pieces of columns [first_column, first_column + n): column first_column + offset + i
  // is kept if words[i] >= threshold.
  template <class Body>
  static void pieces(std::uint64_t key, std::int64_t sequence, std::int64_t position, std::int64_t first_column,
                     std::int64_t n, const Body& body) {
    constexpr std::int64_t kGroups = 64;
    alignas(32) std::array<std::uint32_t, 4 * kGroups> words;
    std::int64_t skip = first_column % 4;
    for (std::int64_t done = 0; done < n;) {
      const std::int64_t count = std::min(n - done, 4 * kGroups - skip);
      const std::int64_t groups = (skip + count + 15) / 16 * 4;
      dropout_words(key, sequence, position, (first_column + done) / 4, groups, words.data());
      body(done, count, words.data() + skip);
      done += count;
      skip = 0;
    }
  }
};

}  // namespace rehearse::kernels::cpu
