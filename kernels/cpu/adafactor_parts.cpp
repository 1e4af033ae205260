// Adafactor's update in parts (sim/program/op.h, AdafactorParts) of tensors of which this rank has some elements. Sums
// are taken in double, each row's and each column's in the order of its elements here, so that no result depends on
// the number of threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/adafactor_rules.h"
#include "kernels/cpu/cpu_device.h"

namespace rehearse::kernels::cpu {
namespace {

// A tensor's elements here as runs, each within one row of the matrix.
class Runs {
 public:
  explicit Runs(const AdafactorTensor& tensor) : t_(tensor) {
    if (t_.end <= t_.begin) return;
    first_row_ = t_.first / width();
    rows_ = (t_.first + t_.end - t_.begin - 1) / width() - first_row_ + 1;
  }
  // Of the rank's part of the matrix that have elements here; of what is no matrix pieces of a fixed size.
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return t_.rows > 0 ? t_.own_cols : kElementGrain; }
  // Columns of the part that the k-th row has here, [from, to).
  std::int64_t from(std::int64_t k) const { return k == 0 ? t_.first % width() : 0; }
  std::int64_t to(std::int64_t k) const {
    return std::min(width(), t_.first + t_.end - t_.begin - (first_row_ + k) * width());
  }
  // In the flat range, of the part's column c of the k-th row.
  std::int64_t at(std::int64_t k, std::int64_t c) const { return t_.begin + (first_row_ + k) * width() + c - t_.first; }
  // Of the k-th row in the whole matrix; of what is no matrix the first of the piece's elements in the rank's part.
  std::int64_t row(std::int64_t k) const {
    const std::int64_t own = first_row_ + k;
    if (t_.rows == 0) return own * width();
    return t_.block > 0 ? (own / t_.block * t_.parts + t_.place) * t_.block + own % t_.block : own;
  }
  std::int64_t first_column() const { return t_.own_cols < t_.cols ? t_.place * t_.own_cols : 0; }

 private:
  const AdafactorTensor& t_;
  std::int64_t first_row_ = 0, rows_ = 0;
};

// each(element of the flat range, its update before it is clipped), row by row; rows by several threads.
template <class Parallel, class Each>
void each_update(const AdafactorTensor& t, const float* grad, float scale, const float* means, const Parallel& parallel,
                 const Each& each) {
  const float* const own = means + t.means;
  const double mean_of_rows = t.rows > 0 ? std::accumulate(own, own + t.rows, 0.0) / static_cast<double>(t.rows) : 1;
  const Runs runs(t);
  parallel(runs.rows(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t row = runs.row(k);
      const double by_row = t.rows > 0 ? 1 / std::sqrt(static_cast<double>(own[row]) / mean_of_rows) : 1;
      const float* const columns = t.rows > 0 ? own + t.rows + runs.first_column() : own + row;
      for (std::int64_t c = runs.from(k); c < runs.to(k); ++c) {
        const std::int64_t i = runs.at(k, c);
        each(k, i, static_cast<double>(grad[i] * scale) * by_row / std::sqrt(static_cast<double>(columns[c])));
      }
    }
  });
}

}  // namespace

void CpuDevice::adafactor_sums(std::int64_t n, std::span<const AdafactorTensor> tensors, In grad,
                               const float* coefficient, std::int64_t count, float* sums) {
  std::fill_n(sums, count, 0.0F);
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;  // the other parts change nothing either
  Widened w(*this);
  const float* g = w.read(grad, n);
  for (const AdafactorTensor& t : tensors) {
    if (t.rows == 0 || !t.counted) continue;
    const Runs runs(t);
    kernels_.parallel(runs.rows(), kRowGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        double sum = 0;
        for (std::int64_t c = runs.from(k); c < runs.to(k); ++c) sum += square_of(g[runs.at(k, c)], factor);
        sums[t.sums + runs.row(k)] = static_cast<float>(sum);
      }
    });
    kernels_.parallel(t.own_cols, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> of_columns(static_cast<std::size_t>(end - begin));
      for (std::int64_t k = 0; k < runs.rows(); ++k)
        for (std::int64_t c = std::max(begin, runs.from(k)); c < std::min(end, runs.to(k)); ++c)
          of_columns[static_cast<std::size_t>(c - begin)] += square_of(g[runs.at(k, c)], factor);
      for (std::int64_t c = begin; c < end; ++c)
        sums[t.sums + t.rows + runs.first_column() + c] =
            static_cast<float>(of_columns[static_cast<std::size_t>(c - begin)]);
    });
  }
}

void CpuDevice::adafactor_squares(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                                  const float* coefficient, const float* sums, float* means, float* squares) {
  std::fill_n(squares, tensors.size(), 0.0F);
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;
  const double decay = decay_in(*o.step);
  Widened w(*this);
  const float* g = w.read(grad, n);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const AdafactorTensor& t = tensors[i];
    float* const own = means + t.means;
    const Runs runs(t);
    if (t.rows > 0) {
      for (std::int64_t r = 0; r < t.rows; ++r)
        follow(own[r], decay, static_cast<double>(sums[t.sums + r]) / static_cast<double>(t.cols));
      for (std::int64_t c = t.rows; c < t.rows + t.cols; ++c)
        follow(own[c], decay, static_cast<double>(sums[t.sums + c]) / static_cast<double>(t.rows));
    } else {
      for (std::int64_t k = 0; k < runs.rows(); ++k)
        for (std::int64_t c = runs.from(k); c < runs.to(k); ++c)
          follow(own[runs.row(k) + c], decay, square_of(g[runs.at(k, c)], factor));
    }
    if (!t.counted) continue;
    std::vector<double> of_rows(static_cast<std::size_t>(runs.rows()));
    const auto rows = [&](std::int64_t count, const auto& work) { kernels_.parallel(count, kRowGrain, work); };
    each_update(t, g, factor, means, rows,
                [&](std::int64_t k, std::int64_t, double u) { of_rows[static_cast<std::size_t>(k)] += u * u; });
    squares[i] = static_cast<float>(std::accumulate(of_rows.begin(), of_rows.end(), 0.0));
  }
}

void CpuDevice::adafactor_apply(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                                const float* coefficient, const float* means, const float* squares, Out param,
                                float* master) {
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;
  Widened w(*this);
  const float* g = w.read(grad, n);
  float* p = master ? master : w.update(param, n);
  const double lr = o.step->lr, keep = 1 - lr * o.weight_decay;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const AdafactorTensor& t = tensors[i];
    const double rms = std::sqrt(static_cast<double>(squares[i]) / static_cast<double>(t.whole));
    const double by = lr / std::max(1.0, rms / kClipThreshold);
    const auto rows = [&](std::int64_t count, const auto& work) { kernels_.parallel(count, kRowGrain, work); };
    each_update(t, g, factor, means, rows, [&](std::int64_t, std::int64_t at, double u) {
      p[at] = static_cast<float>(static_cast<double>(p[at]) * keep - by * u);
    });
  }
  if (master) convert(n, p, param);
}

}  // namespace rehearse::kernels::cpu
