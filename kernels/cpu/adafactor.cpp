// Adafactor's update (Shazeer and Stern 2018, arXiv 1804.04235; the variant is sim/program/op.h's). Means are taken in
// double: a row's along it, a column's down it, the whole tensor's by rows in their order. So no result depends on the
// number of threads. A tensor that is not factored is worked on in rows of a fixed number of elements.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/adafactor_rules.h"
#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {

void CpuKernels::adafactor(const Adafactor& o, const float* grad, float grad_scale, float* param, float* row,
                           float* col) {
  const bool factored = o.rows > 0;
  const std::int64_t n = factored ? o.rows * o.cols : o.cols;
  const std::int64_t cols = factored ? o.cols : std::min(n, kElementGrain), rows = (n + cols - 1) / cols;
  const double decay = decay_in(*o.step);
  double mean_of_rows = 1;
  if (factored) {
    parallel(rows, kRowGrain, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < cols; ++j) sum += square_of(grad[i * cols + j], grad_scale);
        follow(row[i], decay, sum / static_cast<double>(cols));
      }
    });
    parallel(cols, kColumnGrain, [=](std::int64_t begin, std::int64_t end) {
      std::vector<double> sums(static_cast<std::size_t>(end - begin));
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = begin; j < end; ++j)
          sums[static_cast<std::size_t>(j - begin)] += square_of(grad[i * cols + j], grad_scale);
      for (std::int64_t j = begin; j < end; ++j)
        follow(col[j], decay, sums[static_cast<std::size_t>(j - begin)] / static_cast<double>(rows));
    });
    mean_of_rows = std::accumulate(row, row + rows, 0.0) / static_cast<double>(rows);
  } else {
    parallel(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) follow(col[j], decay, square_of(grad[j], grad_scale));
    });
  }
  // each(i, j, update) of row i's elements j of the tensor, before they are clipped.
  const auto updates = [=](std::int64_t i, const auto& each) {
    const double by_row = factored ? 1 / std::sqrt(static_cast<double>(row[i]) / mean_of_rows) : 1;
    for (std::int64_t j = i * cols; j < std::min(n, (i + 1) * cols); ++j) {
      const double mean = col[factored ? j - i * cols : j];
      each(j, static_cast<double>(grad[j] * grad_scale) * by_row / std::sqrt(mean));
    }
  };
  std::vector<double> squares(static_cast<std::size_t>(rows));
  parallel(rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      updates(i, [&](std::int64_t, double u) { squares[static_cast<std::size_t>(i)] += u * u; });
  });
  const double rms = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(n));
  const double lr = o.step->lr, by = lr / std::max(1.0, rms / kClipThreshold), keep = 1 - lr * o.weight_decay;
  parallel(rows, kRowGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      updates(i, [&](std::int64_t j, double u) {
        param[j] = static_cast<float>(static_cast<double>(param[j]) * keep - by * u);
      });
  });
}

}  // namespace rehearse::kernels::cpu
