// Muon's update (Jordan et al. 2024; the variant is sim/program/op.h's). Products are split by rows of their result,
// each of which is one thread's, so no result depends on the number of threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm.h"

namespace rehearse::kernels::cpu {
namespace {

// Newton-Schulz iteration of fifth order, tuned for a slope as steep as can be at 0 (Jordan et al. 2024, "Muon: An
// optimizer for hidden layers in neural networks"; KellerJordan/Muon, zeropower_via_newtonschulz5).
constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
constexpr int kIterations = 5;
constexpr double kLeastNorm = 1e-7;
constexpr std::int64_t kProductRows = 32;  // of a thread's piece of a product

}  // namespace

// x [rows, cols], rows <= cols, in place; a and b [rows, rows], y [rows, cols].
void CpuKernels::newton_schulz(std::int64_t rows, std::int64_t cols, float* x, float* a, float* b, float* y) {
  for (int i = 0; i < kIterations; ++i) {
    parallel(rows, kProductRows, [=](std::int64_t begin, std::int64_t end) {
      multiply(end - begin, rows, cols, {x + begin * cols, cols}, {x, cols, true}, false, a + begin * rows, rows);
    });
    parallel(rows, kProductRows, [=](std::int64_t begin, std::int64_t end) {
      multiply(end - begin, rows, rows, {a + begin * rows, rows}, {a, rows}, false, b + begin * rows, rows);
      for (std::int64_t j = begin * rows; j < end * rows; ++j) b[j] = kB * a[j] + kC * b[j];
    });
    parallel(rows, kProductRows, [=](std::int64_t begin, std::int64_t end) {
      multiply(end - begin, cols, rows, {b + begin * rows, rows}, {x, cols}, false, y + begin * cols, cols);
    });
    parallel(rows, kProductRows, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin * cols; j < end * cols; ++j) x[j] = kA * x[j] + y[j];
    });
  }
}

void CpuKernels::muon(const Muon& o, const float* grad, float grad_scale, float* param, float* momentum) {
  const std::int64_t in_run = o.rows / o.blocks, n = o.rows * o.cols;
  const bool tall = o.rows > o.cols;
  const std::int64_t rows = std::min(o.rows, o.cols), cols = std::max(o.rows, o.cols);
  std::vector<float> x(static_cast<std::size_t>(n)), y(x.size()), a(static_cast<std::size_t>(rows * rows)), b(a.size());
  // The place of element j of row i in the tensor, and in x.
  const auto place = [&](std::int64_t matrix, std::int64_t i, std::int64_t j) {
    const std::int64_t row = o.blocks > 1 ? i / in_run * o.apart + i % in_run : i;
    return (matrix * o.rows + o.first + row) * o.cols + j;
  };
  const auto at = [&](std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(tall ? j * cols + i : i * cols + j);
  };
  const auto mu = static_cast<float>(o.momentum);
  const double lr = o.step->lr, keep = 1 - lr * o.weight_decay;
  const double size = 0.2 * std::sqrt(static_cast<double>(cols));
  for (std::int64_t m = 0; m < o.matrices; ++m) {
    double squares = 0;
    for (std::int64_t i = 0; i < o.rows; ++i)
      for (std::int64_t j = 0; j < o.cols; ++j) {
        const std::int64_t p = place(m, i, j);
        const float g = grad[p] * grad_scale;
        momentum[p] = mu * momentum[p] + g;
        const float u = g + mu * momentum[p];
        x[at(i, j)] = u;
        squares += static_cast<double>(u) * u;
      }
    const auto inverse = static_cast<float>(1 / (std::sqrt(squares) + kLeastNorm));
    for (float& value : x) value *= inverse;
    newton_schulz(rows, cols, x.data(), a.data(), b.data(), y.data());
    for (std::int64_t i = 0; i < o.rows; ++i)
      for (std::int64_t j = 0; j < o.cols; ++j) {
        const std::int64_t p = place(m, i, j);
        param[p] =
            static_cast<float>(static_cast<double>(param[p]) * keep - lr * size * static_cast<double>(x[at(i, j)]));
      }
  }
}

}  // namespace rehearse::kernels::cpu
