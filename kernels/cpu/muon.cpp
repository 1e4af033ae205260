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

namespace {

// Where the elements of a tensor's matrices are: [i, j] of the part that this rank has of matrix `matrix`.
struct MuonLayout {
  explicit MuonLayout(const Muon& o)
      : rows(o.by_columns ? o.rows : o.rows / o.parts),
        cols(o.by_columns ? o.cols / o.parts : o.cols),
        in_run(rows / o.blocks),
        apart(o.apart),
        first(o.first),
        tensor_rows(o.apart > 0 ? o.blocks * o.apart : rows),
        offset(o.offset) {}
  std::int64_t place(std::int64_t matrix, std::int64_t i, std::int64_t j) const {
    const std::int64_t row = apart > 0 ? first + i / in_run * apart + i % in_run : i;
    return offset + (matrix * tensor_rows + row) * cols + j;
  }
  std::int64_t rows, cols, in_run, apart, first, tensor_rows, offset;
};

}  // namespace

void CpuKernels::muon_momentum(const Muon& o, const float* grad, float grad_scale, float* momentum, float* u) {
  const auto mu = static_cast<float>(o.momentum);
  for (std::int64_t i = 0; i < o.elements; ++i) {
    const float g = grad[i] * grad_scale;
    momentum[i] = mu * momentum[i] + g;
    u[i] = g + mu * momentum[i];
  }
}

// u(matrix, i, j): of whole matrices, each of which is asked for once. give(place, x) what they become, times the size
// of the update, of this rank's part. may_be_skipped: what is no number comes of a step that is skipped, as u cannot
// say otherwise.
template <class U, class Give>
void CpuKernels::make_orthogonal(const Muon& o, const U& u, bool may_be_skipped, const Give& give) {
  const std::int64_t n = o.rows * o.cols;
  const bool tall = o.rows > o.cols;
  const std::int64_t rows = std::min(o.rows, o.cols), cols = std::max(o.rows, o.cols);
  std::vector<float> x(static_cast<std::size_t>(n)), y(x.size()), a(static_cast<std::size_t>(rows * rows)), b(a.size());
  const auto at = [&](std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(tall ? j * cols + i : i * cols + j);
  };
  const MuonLayout own(o);
  const std::int64_t first_row = o.by_columns ? 0 : o.own * own.rows, first_col = o.by_columns ? o.own * own.cols : 0;
  const double size = 0.2 * std::sqrt(static_cast<double>(cols));
  for (std::int64_t m = 0; m < o.matrices; ++m) {
    double squares = 0;
    for (std::int64_t i = 0; i < o.rows; ++i)
      for (std::int64_t j = 0; j < o.cols; ++j) {
        const float value = u(m, i, j);
        x[at(i, j)] = value;
        squares += static_cast<double>(value) * value;
      }
    if (may_be_skipped && std::isnan(squares)) continue;
    const auto inverse = static_cast<float>(1 / (std::sqrt(squares) + kLeastNorm));
    for (float& value : x) value *= inverse;
    newton_schulz(rows, cols, x.data(), a.data(), b.data(), y.data());
    for (std::int64_t i = 0; i < own.rows; ++i)
      for (std::int64_t j = 0; j < own.cols; ++j)
        give(own.place(m, i, j), size * static_cast<double>(x[at(first_row + i, first_col + j)]));
  }
}

namespace {

// param -= lr (step + weight_decay param)
struct MuonStep {
  explicit MuonStep(const Muon& o) : lr(o.step->lr), keep(1 - lr * o.weight_decay) {}
  void apply(float& param, double step) const {
    param = static_cast<float>(static_cast<double>(param) * keep - lr * step);
  }
  double lr, keep;
};

// Of the elements of all parts.
auto of_all_parts(const Muon& o, const MuonLayout& layout, const float* u) {
  return [&o, &layout, u](std::int64_t m, std::int64_t i, std::int64_t j) {
    const std::int64_t part = o.by_columns ? j / layout.cols : i / layout.rows;
    const std::int64_t row = o.by_columns ? i : i % layout.rows, col = o.by_columns ? j % layout.cols : j;
    return u[part * o.elements + layout.place(m, row, col)];
  };
}

}  // namespace

void CpuKernels::muon(const Muon& o, const float* grad, float grad_scale, float* param, float* momentum) {
  const auto mu = static_cast<float>(o.momentum);
  const MuonLayout layout(o);
  const MuonStep step(o);
  const auto u = [&](std::int64_t m, std::int64_t i, std::int64_t j) {
    const std::int64_t p = layout.place(m, i, j);
    const float g = grad[p] * grad_scale;
    momentum[p] = mu * momentum[p] + g;
    return g + mu * momentum[p];
  };
  make_orthogonal(o, u, false, [&](std::int64_t place, double x) { step.apply(param[place], x); });
}

void CpuKernels::muon_update(const Muon& o, const float* u, float* param) {
  const MuonLayout layout(o);
  const MuonStep step(o);
  make_orthogonal(o, of_all_parts(o, layout, u), true,
                  [&](std::int64_t place, double x) { step.apply(param[place], x); });
}

void CpuKernels::muon_orthogonal(const Muon& o, const float* u, float* x) {
  const MuonLayout layout(o);
  make_orthogonal(o, of_all_parts(o, layout, u), false,
                  [&](std::int64_t place, double value) { x[place] = static_cast<float>(value); });
}

void CpuKernels::muon_apply(const Muon& o, const float* x, float* param) {
  const MuonStep step(o);
  for (std::int64_t i = 0; i < o.elements; ++i) step.apply(param[i], x[i]);
}

}  // namespace rehearse::kernels::cpu
