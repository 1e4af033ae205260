// Adafactor's update (Shazeer and Stern 2018, arXiv 1804.04235; the variant is sim/program/op.h's) in four passes over
// the gradient: means of squares of rows and of columns, squares of the updates, the update. A block sums up a row, a
// thread a column, each in an order of its own: the same result on any GPU. fp32 but for sums, which are in double.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kFactorThreads = 256;
constexpr float kFactorLeast = 1e-30F, kFactorDecayPower = -0.8F;
constexpr double kFactorClip = 1.0;
constexpr std::int64_t kUnfactoredCols = 4096;

// [rows, cols] elements of n in all; without factors the last row may be shorter, and col is one mean an element.
struct FactorShape {
  std::int64_t n, rows, cols;
  bool factored;
};
struct FactorMeans {
  float *row, *col;
};

__device__ float factor_decay(const StepValues* step) {
  return 1.0F - powf(static_cast<float>(step->step + 1), kFactorDecayPower);
}

template <class TG>
__device__ double factor_square(const Source<TG>& grad, std::int64_t at, float by) {
  const float g = grad.get(at) * by;
  return static_cast<double>(g) * static_cast<double>(g) + static_cast<double>(kFactorLeast);
}

__device__ void factor_follow(float* mean, float decay, double now) {
  *mean = static_cast<float>(static_cast<double>(decay) * static_cast<double>(*mean) +
                             (1.0 - static_cast<double>(decay)) * now);
}

template <class TG>
__global__ void __launch_bounds__(kFactorThreads)
    factor_rows(FactorShape s, const StepValues* step, Source<TG> grad, const float* coefficient, float* row) {
  __shared__ double shared[kFactorThreads / 32];
  const float by = coefficient ? *coefficient : 1.0F;
  if (by != by) return;
  const auto i = static_cast<std::int64_t>(blockIdx.x);
  double sum = 0;
  for (std::int64_t j = threadIdx.x; j < s.cols; j += kFactorThreads) sum += factor_square(grad, i * s.cols + j, by);
  sum = row_sum(sum, shared);
  if (threadIdx.x == 0) factor_follow(row + i, factor_decay(step), sum / static_cast<double>(s.cols));
}

// A thread a column; without factors an element.
template <class TG>
__global__ void __launch_bounds__(kFactorThreads)
    factor_cols(FactorShape s, const StepValues* step, Source<TG> grad, const float* coefficient, float* col) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kFactorThreads + threadIdx.x;
  const std::int64_t width = s.factored ? s.cols : s.n, rows = s.factored ? s.rows : 1;
  const float by = coefficient ? *coefficient : 1.0F;
  if (by != by || j >= width) return;
  double sum = 0;
  for (std::int64_t i = 0; i < rows; ++i) sum += factor_square(grad, i * width + j, by);
  factor_follow(col + j, factor_decay(step), sum / static_cast<double>(rows));
}

__global__ void __launch_bounds__(kFactorThreads) factor_sum_floats(std::int64_t n, const float* x, double* sum) {
  __shared__ double shared[kFactorThreads / 32];
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kFactorThreads) total += static_cast<double>(x[i]);
  total = row_sum(total, shared);
  if (threadIdx.x == 0) *sum = total;
}
__global__ void __launch_bounds__(kFactorThreads) factor_sum_doubles(std::int64_t n, const double* x, double* sum) {
  __shared__ double shared[kFactorThreads / 32];
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kFactorThreads) total += x[i];
  total = row_sum(total, shared);
  if (threadIdx.x == 0) *sum = total;
}

__device__ float factor_of_row(const FactorShape& s, const FactorMeans& means, const double* sum_of_rows,
                               std::int64_t i) {
  if (!s.factored) return 1.0F;
  return rsqrtf(static_cast<float>(static_cast<double>(means.row[i]) * static_cast<double>(s.rows) / *sum_of_rows));
}

// The sum of the squares of a row's updates.
template <class TG>
__global__ void __launch_bounds__(kFactorThreads)
    factor_squares(FactorShape s, Source<TG> grad, const float* coefficient, FactorMeans means,
                   const double* sum_of_rows, double* squares) {
  __shared__ double shared[kFactorThreads / 32];
  const float by = coefficient ? *coefficient : 1.0F;
  if (by != by) return;
  const auto i = static_cast<std::int64_t>(blockIdx.x);
  const float by_row = factor_of_row(s, means, sum_of_rows, i);
  const std::int64_t first = i * s.cols, end = first + s.cols < s.n ? first + s.cols : s.n;
  double sum = 0;
  for (std::int64_t at = first + threadIdx.x; at < end; at += kFactorThreads) {
    const float u = grad.get(at) * by * by_row * rsqrtf(means.col[s.factored ? at - first : at]);
    sum += static_cast<double>(u) * static_cast<double>(u);
  }
  sum = row_sum(sum, shared);
  if (threadIdx.x == 0) squares[i] = sum;
}

template <class TG>
__global__ void __launch_bounds__(kFactorThreads)
    factor_update(FactorShape s, float weight_decay, const StepValues* step, Source<TG> grad, const float* coefficient,
                  FactorMeans means, const double* sums, Target<float> weights, Target<AnyType> param) {
  const float by = coefficient ? *coefficient : 1.0F;
  if (by != by) return;
  const auto i = static_cast<std::int64_t>(blockIdx.x);
  const float by_row = factor_of_row(s, means, sums, i), lr = step->lr, keep = 1.0F - lr * weight_decay;
  const auto rms = static_cast<float>(sqrt(sums[1] / static_cast<double>(s.n)) / kFactorClip);
  const float rate = rms > 1.0F ? lr / rms : lr;
  const std::int64_t first = i * s.cols, end = first + s.cols < s.n ? first + s.cols : s.n;
  for (std::int64_t at = first + threadIdx.x; at < end; at += kFactorThreads) {
    const float u = grad.get(at) * by * by_row * rsqrtf(means.col[s.factored ? at - first : at]);
    const float w = weights.get(at) * keep - rate * u;
    weights.put(at, w);
    if (param.there()) param.put(at, w);
  }
}

}  // namespace

void CudaDevice::adafactor(const Adafactor& o, In grad, const float* coefficient, Out param, float* master, float* row,
                           float* col) {
  REHEARSE_REQUIRE(master || param.type == DType::f32, "a half parameter without an fp32 copy");
  const Out weights = master ? Out(master) : param, copy = master ? param : Out();
  FactorShape s{o.cols, 1, o.cols, o.rows > 0};
  if (s.factored) {
    s.n = o.rows * o.cols, s.rows = o.rows;
  } else {
    s.cols = s.n < kUnfactoredCols ? s.n : kUnfactoredCols;
    s.rows = ceil_div(s.n, s.cols);
  }
  const FactorMeans means{row, col};
  auto* sums = workspace<double>(2 + s.rows);  // of row means, of squares of updates, of those by rows
  by_type({grad}, [&]<class TG>() {
    const Source<TG> g(grad);
    if (s.factored) {
      launch(factor_rows<TG>, grid_of(s.rows), kFactorThreads, 0, stream_, s, o.step, g, coefficient, row);
      launch(factor_sum_floats, 1, kFactorThreads, 0, stream_, s.rows, static_cast<const float*>(row), sums);
    }
    launch(factor_cols<TG>, grid_of(ceil_div(s.factored ? s.cols : s.n, kFactorThreads)), kFactorThreads, 0, stream_, s,
           o.step, g, coefficient, col);
    launch(factor_squares<TG>, grid_of(s.rows), kFactorThreads, 0, stream_, s, g, coefficient, means,
           static_cast<const double*>(sums), sums + 2);
    launch(factor_sum_doubles, 1, kFactorThreads, 0, stream_, s.rows, static_cast<const double*>(sums + 2), sums + 1);
    launch(factor_update<TG>, grid_of(s.rows), kFactorThreads, 0, stream_, s, static_cast<float>(o.weight_decay),
           o.step, g, coefficient, means, static_cast<const double*>(sums), Target<float>(weights),
           Target<AnyType>(copy));
  });
}

}  // namespace rehearse::kernels::cuda
