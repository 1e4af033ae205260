// Softmax cross-entropy, fused and in the three parts of a vocabulary split over ranks (Shoeybi et al. 2019, arXiv
// 1909.08053): maximum, sum of exponentials and the target's logit, loss. Padding columns are as if they were not
// there.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr std::int32_t kLeftOut = -1;  // a target

std::int64_t local_columns(std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col) {
  return std::clamp<std::int64_t>(valid_cols - first_col, 0, cols);
}

float exp_sum(std::int64_t n, const float* x, float max) {
  return sum_terms(n, [=](std::int64_t i, auto tag) { return exp(get(x + i, tag) - max); });
}

// Elements that stay in the first-level cache between two passes, and that the second pass asks for ahead: the
// processor's own prefetching starts anew on every page.
constexpr std::int64_t kBlock = 512;

struct RowSum {
  float max, total;  // of exp(x - max)
};

// Reads x once: the sum so far is rescaled when a block brings a greater maximum (Milakov and Gimelshein 2018, arXiv
// 1805.02867). The maximum begins at a finite number, so that minus infinities are zeros of the sum.
RowSum row_sum(std::int64_t n, const float* x) {
  RowSum row{std::numeric_limits<float>::lowest(), 0};
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    const float now = max(max_of(count, x + begin), row.max);
    row.total = row.total * exp(row.max - now) + sum_terms(count, [block = x + begin, now](std::int64_t i, auto tag) {
                  __builtin_prefetch(block + i + kBlock);
                  return exp_for_sum(get(block + i, tag) - now);
                });
    row.max = now;
  }
  return row;
}

}  // namespace

void CpuKernels::cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale,
                                       const float* logits, const std::int32_t* targets, float* stats, float* loss) {
  std::vector<double> losses(static_cast<std::size_t>(rows));
  pool_.ranges(rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int32_t target = targets[row];
      REHEARSE_CHECK(target >= kLeftOut && target < valid_cols, "target {} of {} classes", target, valid_cols);
      const float* x = logits + row * cols;
      const auto [max, total] = row_sum(valid_cols, x);
      stats[2 * row] = max;
      stats[2 * row + 1] = total;
      if (target != kLeftOut)
        losses[static_cast<std::size_t>(row)] = std::log(static_cast<double>(total)) + max - x[target];
    }
  });
  double total = 0;
  for (const double one : losses) total += one;
  *loss = static_cast<float>(*loss + total * scale);
}

void CpuKernels::cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                   std::int64_t first_col, const float* logits, float* max) {
  const std::int64_t n = local_columns(cols, valid_cols, first_col);
  pool_.ranges(rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) max[row] = max_of(n, logits + row * cols);
  });
}

void CpuKernels::cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                       std::int64_t first_col, const float* logits, const std::int32_t* targets,
                                       const float* max, float* sums) {
  const std::int64_t n = local_columns(cols, valid_cols, first_col);
  pool_.ranges(rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = logits + row * cols;
      if (targets[row] == kLeftOut) {  // over all ranks a sum of one, whose logarithm is no loss
        sums[2 * row] = first_col == 0 ? 1 : 0;
        sums[2 * row + 1] = 0;
        continue;
      }
      const std::int64_t target = targets[row] - first_col;
      sums[2 * row] = exp_sum(n, x, max[row]);
      sums[2 * row + 1] = target >= 0 && target < n ? x[target] - max[row] : 0;
    }
  });
}

void CpuKernels::cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) {
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    total += std::log(static_cast<double>(sums[2 * row])) - sums[2 * row + 1];
  *loss = static_cast<float>(*loss + total * scale);
}

void CpuKernels::cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                        std::int64_t first_col, double scale, const float* logits,
                                        const std::int32_t* targets, const float* max, std::int64_t max_stride,
                                        const float* sum, std::int64_t sum_stride, float* d_logits) {
  const std::int64_t n = local_columns(cols, valid_cols, first_col);
  pool_.ranges(rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = logits + row * cols;  // may be d_logits
      float* d = d_logits + row * cols;
      if (targets[row] == kLeftOut) {
        std::fill(d, d + cols, 0.0f);
        continue;
      }
      const float m = max[row * max_stride];
      const auto factor = static_cast<float>(scale / sum[row * sum_stride]);
      each(0, n, [=](std::int64_t i, auto tag) { put(d + i, exp(get(x + i, tag) - m) * factor); });
      std::fill(d + n, d + cols, 0.0f);
      const std::int64_t target = targets[row] - first_col;
      if (target >= 0 && target < n) d[target] -= static_cast<float>(scale);
    }
  });
}

}  // namespace rehearse::kernels::cpu
