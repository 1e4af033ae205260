// Adafactor's update in parts (sim/program/optimizer_ops.h, AdafactorParts) of tensors of which this rank has some
// elements: sums of squares by rows and columns, means and squares of the updates, the update. Launches of a tensor
// each: a block sums up a row, a thread a column, each in an order of its own, so that results do not depend on the
// GPU. Sums are in double.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kPartThreads = 256;
constexpr double kPartLeast = 1e-30, kPartClip = 1.0, kPartDecayPower = -0.8;
constexpr std::int64_t kPieceCols = 4096;  // of what is no matrix

// A tensor's elements here as runs, each within one row of the matrix.
struct PartRuns {
  AdafactorTensor t;
  std::int64_t width, first_row, rows;

  explicit PartRuns(const AdafactorTensor& tensor)
      : t(tensor), width(tensor.rows > 0 ? tensor.own_cols : kPieceCols), first_row(tensor.first / width), rows(0) {
    if (t.end > t.begin) rows = (t.first + t.end - t.begin - 1) / width - first_row + 1;
  }
  // Columns of the part that the k-th row has here, [from, to).
  __device__ std::int64_t from(std::int64_t k) const { return k == 0 ? t.first % width : 0; }
  __device__ std::int64_t to(std::int64_t k) const {
    const std::int64_t left = t.first + t.end - t.begin - (first_row + k) * width;
    return left < width ? left : width;
  }
  // In the flat range, of the part's column c of the k-th row.
  __device__ std::int64_t at(std::int64_t k, std::int64_t c) const {
    return t.begin + (first_row + k) * width + c - t.first;
  }
  // Of the k-th row in the whole matrix; of what is no matrix the first of the piece's elements in the rank's part.
  __device__ std::int64_t row(std::int64_t k) const {
    const std::int64_t own = first_row + k;
    if (t.rows == 0) return own * width;
    return t.block > 0 ? (own / t.block * t.parts + t.place) * t.block + own % t.block : own;
  }
  __device__ std::int64_t first_column() const { return t.own_cols < t.cols ? t.place * t.own_cols : 0; }
};

__device__ float part_factor(const float* coefficient) {
  return coefficient != nullptr ? *coefficient : 1.0F;
}
template <class T>
__device__ double part_square(const Source<T>& grad, std::int64_t at, float factor) {
  const auto g = static_cast<double>(grad.get(at) * factor);
  return g * g + kPartLeast;
}
__device__ double part_decay(const StepValues* step) {
  return 1.0 - pow(static_cast<double>(step->step + 1), kPartDecayPower);
}
__device__ void part_follow(float* mean, double decay, double now) {
  *mean = static_cast<float>(decay * static_cast<double>(*mean) + (1.0 - decay) * now);
}

template <class T>
__global__ void __launch_bounds__(kPartThreads)
    part_row_sums(PartRuns runs, Source<T> grad, const float* coefficient, float* sums) {
  __shared__ double shared[kPartThreads / 32];
  const float factor = part_factor(coefficient);
  if (factor != factor) return;
  const auto k = static_cast<std::int64_t>(blockIdx.x);
  double sum = 0;
  for (std::int64_t c = runs.from(k) + threadIdx.x; c < runs.to(k); c += kPartThreads)
    sum += part_square(grad, runs.at(k, c), factor);
  sum = row_sum(sum, shared);
  if (threadIdx.x == 0) sums[runs.t.sums + runs.row(k)] = static_cast<float>(sum);
}

template <class T>
__global__ void __launch_bounds__(kPartThreads)
    part_column_sums(PartRuns runs, Source<T> grad, const float* coefficient, float* sums) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kPartThreads + threadIdx.x;
  const float factor = part_factor(coefficient);
  if (factor != factor || c >= runs.t.own_cols) return;
  double sum = 0;
  for (std::int64_t k = 0; k < runs.rows; ++k)
    if (c >= runs.from(k) && c < runs.to(k)) sum += part_square(grad, runs.at(k, c), factor);
  sums[runs.t.sums + runs.t.rows + runs.first_column() + c] = static_cast<float>(sum);
}

// Of a matrix the means of its rows and columns, which all ranks follow alike; else one of each element here.
template <class T>
__global__ void __launch_bounds__(kPartThreads) part_means(PartRuns runs, const StepValues* step, Source<T> grad,
                                                           const float* coefficient, const float* sums, float* means) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPartThreads + threadIdx.x;
  const AdafactorTensor& t = runs.t;
  const float factor = part_factor(coefficient);
  if (factor != factor) return;
  if (t.rows == 0) {
    if (i < t.end - t.begin)
      part_follow(means + t.means + t.first + i, part_decay(step), part_square(grad, t.begin + i, factor));
  } else if (i < t.rows + t.cols) {
    const std::int64_t of = i < t.rows ? t.cols : t.rows;
    part_follow(means + t.means + i, part_decay(step), static_cast<double>(sums[t.sums + i]) / static_cast<double>(of));
  }
}

__global__ void __launch_bounds__(kPartThreads) part_mean_of_rows(AdafactorTensor t, const float* means, double* mean) {
  __shared__ double shared[kPartThreads / 32];
  double sum = 0;
  for (std::int64_t r = threadIdx.x; r < t.rows; r += kPartThreads) sum += static_cast<double>(means[t.means + r]);
  sum = row_sum(sum, shared);
  if (threadIdx.x == 0) *mean = sum / static_cast<double>(t.rows);
}

// each(element of the flat range, its update before it is clipped) of the block's run.
template <class T, class Each>
__device__ void each_part_update(const PartRuns& runs, const Source<T>& grad, float factor, const float* means,
                                 const double* mean_of_rows, const Each& each) {
  const AdafactorTensor& t = runs.t;
  const auto k = static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t row = runs.row(k);
  const float* own = means + t.means;
  const double by_row = t.rows > 0 ? 1.0 / sqrt(static_cast<double>(own[row]) / *mean_of_rows) : 1.0;
  const float* columns = t.rows > 0 ? own + t.rows + runs.first_column() : own + row;
  for (std::int64_t c = runs.from(k) + threadIdx.x; c < runs.to(k); c += kPartThreads) {
    const std::int64_t at = runs.at(k, c);
    each(at, static_cast<double>(grad.get(at) * factor) * by_row / sqrt(static_cast<double>(columns[c])));
  }
}

template <class T>
__global__ void __launch_bounds__(kPartThreads)
    part_squares(PartRuns runs, Source<T> grad, const float* coefficient, const float* means,
                 const double* mean_of_rows, double* of_rows) {
  __shared__ double shared[kPartThreads / 32];
  const float factor = part_factor(coefficient);
  if (factor != factor) return;
  double sum = 0;
  each_part_update(runs, grad, factor, means, mean_of_rows, [&](std::int64_t, double u) { sum += u * u; });
  sum = row_sum(sum, shared);
  if (threadIdx.x == 0) of_rows[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kPartThreads)
    part_sum_of_rows(std::int64_t n, const float* coefficient, const double* of_rows, float* square) {
  __shared__ double shared[kPartThreads / 32];
  const float factor = part_factor(coefficient);
  if (factor != factor) return;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kPartThreads) sum += of_rows[i];
  sum = row_sum(sum, shared);
  if (threadIdx.x == 0) *square = static_cast<float>(sum);
}

template <class T>
__global__ void __launch_bounds__(kPartThreads)
    part_update(PartRuns runs, double weight_decay, const StepValues* step, Source<T> grad, const float* coefficient,
                const float* means, const double* mean_of_rows, const float* square, Target<float> weights,
                Target<AnyType> copy) {
  const float factor = part_factor(coefficient);
  if (factor != factor) return;
  const double lr = static_cast<double>(step->lr), keep = 1.0 - lr * weight_decay;
  const double rms = sqrt(static_cast<double>(*square) / static_cast<double>(runs.t.whole)) / kPartClip;
  const double rate = rms > 1.0 ? lr / rms : lr;
  each_part_update(runs, grad, factor, means, mean_of_rows, [&](std::int64_t at, double u) {
    const auto w = static_cast<float>(static_cast<double>(weights.get(at)) * keep - rate * u);
    weights.put(at, w);
    if (copy.there()) copy.put(at, w);
  });
}

}  // namespace

void CudaDevice::adafactor_sums(std::int64_t, std::span<const AdafactorTensor> tensors, In grad,
                                const float* coefficient, std::int64_t count, float* sums) {
  fill(count, 0, sums);
  by_type({grad}, [&]<class T>() {
    for (const AdafactorTensor& tensor : tensors) {
      if (tensor.rows == 0 || !tensor.counted) continue;
      const PartRuns runs(tensor);
      launch(part_row_sums<T>, grid_of(runs.rows), kPartThreads, 0, stream_, runs, Source<T>(grad), coefficient, sums);
      launch(part_column_sums<T>, grid_of(ceil_div(tensor.own_cols, kPartThreads)), kPartThreads, 0, stream_, runs,
             Source<T>(grad), coefficient, sums);
    }
  });
}

void CudaDevice::adafactor_squares(std::int64_t, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                                   const float* coefficient, const float* sums, float* means, float* squares) {
  fill(static_cast<std::int64_t>(tensors.size()), 0, squares);
  by_type({grad}, [&]<class T>() {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const AdafactorTensor& tensor = tensors[i];
      const PartRuns runs(tensor);
      const std::int64_t kept = tensor.rows > 0 ? tensor.rows + tensor.cols : tensor.end - tensor.begin;
      launch(part_means<T>, grid_of(ceil_div(kept, kPartThreads)), kPartThreads, 0, stream_, runs, o.step,
             Source<T>(grad), coefficient, sums, means);
      if (!tensor.counted || runs.rows == 0) continue;
      auto* mean = workspace<double>(1 + runs.rows);
      if (tensor.rows > 0) launch(part_mean_of_rows, 1, kPartThreads, 0, stream_, tensor, means, mean);
      launch(part_squares<T>, grid_of(runs.rows), kPartThreads, 0, stream_, runs, Source<T>(grad), coefficient, means,
             mean, mean + 1);
      launch(part_sum_of_rows, 1, kPartThreads, 0, stream_, runs.rows, coefficient, mean + 1, squares + i);
    }
  });
}

void CudaDevice::adafactor_apply(std::int64_t, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                                 const float* coefficient, const float* means, const float* squares, Out param,
                                 float* master) {
  REHEARSE_REQUIRE(master || param.type == DType::f32, "a half parameter without an fp32 copy");
  const Out weights = master ? Out(master) : param, copy = master ? param : Out();
  by_type({grad}, [&]<class T>() {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const AdafactorTensor& tensor = tensors[i];
      const PartRuns runs(tensor);
      auto* mean = workspace<double>(1);
      if (tensor.rows > 0) launch(part_mean_of_rows, 1, kPartThreads, 0, stream_, tensor, means, mean);
      launch(part_update<T>, grid_of(runs.rows), kPartThreads, 0, stream_, runs, o.weight_decay, o.step,
             Source<T>(grad), coefficient, means, mean, squares + i, Target<float>(weights), Target<AnyType>(copy));
    }
  });
}

}  // namespace rehearse::kernels::cuda
