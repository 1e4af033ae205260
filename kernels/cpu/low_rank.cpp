// What PowerSGD does besides products (sim/program/optimizer_ops.h, LowRank). One thread, sums in double precision in
// the order of rows: all ranks, which have the same sums, make the same columns of them.
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {
namespace {

// Nothing is left of a column whose norm has fallen by as much: what there is comes of rounding.
constexpr double kNothingLeft = 1e-6;

using Column = std::vector<double>;

double norm_of(const Column& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares);
}

// Twice, since the first time leaves what rounding makes of a column that lies nearly in the others' span.
void take_out(const std::vector<Column>& before, Column& v) {
  for (int pass = 0; pass < 2; ++pass)
    for (const Column& b : before) {
      double dot = 0;
      for (std::size_t i = 0; i < v.size(); ++i) dot += b[i] * v[i];
      for (std::size_t i = 0; i < v.size(); ++i) v[i] -= dot * b[i];
    }
}

// Of the unit vectors in turn the first one that is not in their span.
Column another(const std::vector<Column>& before, std::size_t rows) {
  for (std::size_t i = 0; i < rows; ++i) {
    Column unit(rows);
    unit[i] = 1;
    take_out(before, unit);
    const double norm = norm_of(unit);
    if (norm * norm * static_cast<double>(rows) < 0.5) continue;
    for (double& x : unit) x /= norm;
    return unit;
  }
  return Column(rows);  // there are more columns than rows
}

}  // namespace

void CpuKernels::orthogonalise(std::int64_t rows, std::int64_t rank, double epsilon, float* x) {
  const auto n = static_cast<std::size_t>(rows), r = static_cast<std::size_t>(rank);
  std::vector<Column> columns;
  for (std::size_t j = 0; j < r; ++j) {
    Column v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<double>(x[i * r + j]);
    const double whole = norm_of(v);
    take_out(columns, v);
    const double left = norm_of(v);
    // What is no number stays none: whoever reads it sees that the step is spoilt.
    if (left <= kNothingLeft * whole) v = another(columns, n);
    const double size = left <= kNothingLeft * whole ? 1 : left;
    for (double& value : v) value /= size;
    for (std::size_t i = 0; i < n; ++i) x[i * r + j] = static_cast<float>(v[i] * (size / (size + epsilon)));
    columns.push_back(std::move(v));
  }
}

void CpuKernels::keep_rest(std::int64_t n, std::int64_t members, std::span<const Range> rest, const float* gradients,
                           float* residual) {
  const float share = 1.0F / static_cast<float>(members);
  parallel(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) residual[i] -= share * gradients[i];
  });
  for (const Range& r : rest) fill(r.elements, 0, residual + r.offset);
}

}  // namespace rehearse::kernels::cpu
