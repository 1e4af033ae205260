// Layer normalisation (Ba et al. 2016) and root-mean-square normalisation (Zhang and Sennrich 2019), row by row.
// With x^ = (x - mean) / deviation (rms: mean = 0) and g = dy gamma, the gradient is
// dx = (g - mean(g) - x^ mean(g x^)) / deviation, without the mean(g) for rms.
#include <cmath>

#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {
namespace {

struct RowStats {
  float mean, inverse;
};

RowStats read_stats(bool rms, const float* stats, std::int64_t row) {
  return rms ? RowStats{0, stats[row]} : RowStats{stats[2 * row], stats[2 * row + 1]};
}

}  // namespace

void CpuKernels::norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, const float* x,
                              const float* gamma, const float* beta, float* y, float* stats) {
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* __restrict in = x + row * cols;
      float* __restrict out = y + row * cols;
      const float mean =
          rms ? 0
              : sum_terms(cols, [=](std::int64_t i, auto tag) { return get(in + i, tag); }) / static_cast<float>(cols);
      const float squares = sum_terms(cols, [=](std::int64_t i, auto tag) {
        const auto d = get(in + i, tag) - mean;
        return d * d;
      });
      const auto inverse = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
      if (rms) {
        stats[row] = inverse;
      } else {
        stats[2 * row] = mean;
        stats[2 * row + 1] = inverse;
      }
      if (beta) {
        for (std::int64_t i = 0; i < cols; ++i) out[i] = (in[i] - mean) * inverse * gamma[i] + beta[i];
      } else {
        for (std::int64_t i = 0; i < cols; ++i) out[i] = (in[i] - mean) * inverse * gamma[i];
      }
    }
  });
}

void CpuKernels::norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                                     const float* stats, const float* gamma, const float* residual, float* dx) {
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto [mean, inverse] = read_stats(rms, stats, row);
      const float* in = x + row * cols;
      const float* d = dy + row * cols;
      const float m = mean;
      const float sum_g =
          rms ? 0 : sum_terms(cols, [=](std::int64_t i, auto tag) { return get(d + i, tag) * get(gamma + i, tag); });
      const float sum_gx = sum_terms(cols, [=](std::int64_t i, auto tag) {
        return get(d + i, tag) * get(gamma + i, tag) * (get(in + i, tag) - m);
      });
      const float mean_g = sum_g / static_cast<float>(cols);
      const float slope = sum_gx * inverse * inverse / static_cast<float>(cols);
      float* out = dx + row * cols;
      if (residual) {
        const float* skip = residual + row * cols;
        for (std::int64_t i = 0; i < cols; ++i) {
          out[i] = skip[i] + (d[i] * gamma[i] - mean_g - (in[i] - m) * slope) * inverse;
        }
      } else {
        for (std::int64_t i = 0; i < cols; ++i) out[i] = (d[i] * gamma[i] - mean_g - (in[i] - m) * slope) * inverse;
      }
    }
  });
}

void CpuKernels::norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                                      const float* stats, float* d_gamma, float* d_beta) {
  pool_.ranges(cols, 64, [&](std::int64_t begin, std::int64_t end, int) {
    add_column_sums(rows, begin, end, d_gamma, [&](std::int64_t row, std::int64_t col, auto tag) {
      const auto [mean, inverse] = read_stats(rms, stats, row);
      return get(dy + row * cols + col, tag) * ((get(x + row * cols + col, tag) - mean) * inverse);
    });
  });
  if (d_beta) bias_grad(rows, cols, dy, d_beta);
}

}  // namespace rehearse::kernels::cpu
