// Softmax cross-entropy, fused and in the three parts of a vocabulary split over ranks (Shoeybi et al. 2019, arXiv
// 1909.08053). A block takes a row and reads it once, keeping a running maximum and a sum that is rescaled when the
// maximum grows (Milakov and Gimelshein 2018, arXiv 1805.02867). Rows may begin at any element: chunks are those of the
// whole operand, cut where the row begins and ends. Padding columns are as if they were not there; a target of -1
// leaves its row out, another one outside the vocabulary gives a loss that is not a number. Bytes that must be moved:
// the logits (backward: and their gradient).
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr std::int32_t kLeftOut = -1;  // a target

__device__ inline float lowest() {
  return -3.402823466e38F;
}

// body(Access, chunk, what was loaded) for the thread's chunks of elements [begin, end), two whole ones loaded at once.
// Chunks that reach past `begin` or `end` are cut; `aligned`: every operand of the body is.
template <class T, class Body>
__device__ void over_span(const Source<T>& x, bool aligned, std::int64_t begin, std::int64_t end, Body&& body) {
  const auto step = static_cast<std::int64_t>(kThreads) * kChunk;
  std::int64_t at = (begin / kChunk + threadIdx.x) * kChunk;
  const auto cut = [&] {
    const Chunk c = clip(at, begin, end);
    body(Piecewise{}, c, Piecewise::load(x, c));
    at += step;
  };
  if (at < begin && at < end) cut();
  for (; aligned && at + step + kChunk <= end; at += 2 * step) {
    const Chunk one{at, 0, kChunk}, two{at + step, 0, kChunk};
    const auto words_one = Whole::load(x, one), words_two = Whole::load(x, two);
    body(Whole{}, one, words_one);
    body(Whole{}, two, words_two);
  }
  for (; aligned && at + kChunk <= end; at += step) {
    const Chunk c{at, 0, kChunk};
    body(Whole{}, c, Whole::load(x, c));
  }
  while (at < end) cut();
}

struct RowSum {
  float max, total;  // of exp(x - max)
};

__device__ inline RowSum merge(const RowSum& a, const RowSum& b) {
  const float max = b.max > a.max ? b.max : a.max;
  return {max, a.total * __expf(a.max - max) + b.total * __expf(b.max - max)};
}

// Over the block, every thread. A logit that is not a number makes the sum one.
template <class T>
__device__ RowSum row_sum(const Source<T>& x, std::int64_t begin, std::int64_t n, RowSum (&shared)[kWarps]) {
  // The maximum begins at a finite number, so that minus infinities are zeros of the sum.
  RowSum row{lowest(), 0};
  over_span(x, x.aligned, begin, begin + n, [&]<class Access>(Access, const Chunk& c, const auto& words) {
    float v[kChunk];
    Access::values(x, words, v);
    float max = row.max;
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i >= c.first && i < c.last) max = v[i] > max ? v[i] : max;
    float total = row.total * __expf(row.max - max);
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i >= c.first && i < c.last) total += __expf(v[i] - max);
    row = {max, total};
  });
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const RowSum other{__shfl_xor_sync(kAllLanes, row.max, lanes), __shfl_xor_sync(kAllLanes, row.total, lanes)};
    row = merge(row, other);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = row;
  __syncthreads();
  row = shared[0];
  for (int w = 1; w < kWarps; ++w) row = merge(row, shared[w]);
  return row;
}

// stats and a loss for each row, not scaled.
template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(std::int64_t cols, std::int64_t valid_cols, std::int64_t first, Source<T> logits,
                   const std::int32_t* targets, float* stats, float* losses) {
  __shared__ RowSum shared[kWarps];
  const std::int64_t row = first + blockIdx.x;
  const RowSum sum = row_sum(logits, row * cols, valid_cols, shared);
  if (threadIdx.x != 0) return;
  *reinterpret_cast<float2*>(stats + 2 * row) = {sum.max, sum.total};
  const std::int32_t target = targets[row];
  const bool inside = target >= 0 && target < valid_cols;
  if (target == kLeftOut)
    losses[blockIdx.x] = 0;
  else
    losses[blockIdx.x] =
        inside ? logf(sum.total) + (sum.max - logits.get(row * cols + target)) : __uint_as_float(0x7FC00000U);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_kernel(std::int64_t cols, std::int64_t count, Source<T> logits, float* max) {
  __shared__ float shared[kWarps];
  const std::int64_t row = blockIdx.x;
  float most = -__uint_as_float(0x7F800000U);
  over_span(logits, logits.aligned, row * cols, row * cols + count,
            [&]<class Access>(Access, const Chunk& c, const auto& words) {
              float v[kChunk];
              Access::values(logits, words, v);
#pragma unroll
              for (int i = 0; i < kChunk; ++i)
                if (i >= c.first && i < c.last) most = v[i] > most || v[i] != v[i] ? v[i] : most;
            });
  most = warp_max(most);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) most = shared[w] > most || shared[w] != shared[w] ? shared[w] : most;
  max[row] = most;
}

// sums [rows, 2]: of exponentials, and the target's logit less the maximum where it is here.
template <class T>
__global__ void __launch_bounds__(kThreads)
    exp_sum_kernel(std::int64_t cols, std::int64_t count, std::int64_t first_col, Source<T> logits,
                   const std::int32_t* targets, const float* max, float* sums) {
  __shared__ float shared[kWarps];
  const std::int64_t row = blockIdx.x;
  const float most = max[row];
  float total = 0;
  over_span(logits, logits.aligned, row * cols, row * cols + count,
            [&]<class Access>(Access, const Chunk& c, const auto& words) {
              float v[kChunk];
              Access::values(logits, words, v);
#pragma unroll
              for (int i = 0; i < kChunk; ++i)
                if (i >= c.first && i < c.last) total += __expf(v[i] - most);
            });
  total = cuda::row_sum(total, shared);
  if (threadIdx.x != 0) return;
  if (targets[row] == kLeftOut) {  // over all ranks a sum of one, whose logarithm is no loss
    *reinterpret_cast<float2*>(sums + 2 * row) = {first_col == 0 ? 1.0F : 0.0F, 0.0F};
    return;
  }
  const std::int64_t target = targets[row] - first_col;
  const bool here = target >= 0 && target < count;
  *reinterpret_cast<float2*>(sums + 2 * row) = {total, here ? logits.get(row * cols + target) - most : 0.0F};
}

// *loss += scale * the sum of a term for each row; one block, each thread rows a block apart, in double precision.
template <class Term>
__global__ void __launch_bounds__(kThreads) loss_kernel(std::int64_t rows, double scale, Term term, float* loss) {
  __shared__ double shared[kWarps];
  double total = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) total += term(row);
  total = cuda::row_sum(total, shared);
  if (threadIdx.x == 0) *loss = static_cast<float>(static_cast<double>(*loss) + total * scale);
}

// One block; what it adds up is exact below 2^24.
__global__ void __launch_bounds__(kThreads) count_kernel(std::int64_t n, const std::int32_t* targets, float* counted) {
  __shared__ double shared[kWarps];
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) total += targets[i] >= 0 ? 1 : 0;
  total = cuda::row_sum(total, shared);
  if (threadIdx.x == 0) *counted += static_cast<float>(total);
}

__global__ void mean_kernel(const float* counted, float* loss) {
  *loss = *counted > 0 ? *loss / *counted : 0;
}

struct LossOfRow {
  const float* losses;
  __device__ double operator()(std::int64_t row) const { return static_cast<double>(losses[row]); }
};
struct LossOfSums {
  const float* sums;
  __device__ double operator()(std::int64_t row) const {
    return static_cast<double>(logf(sums[2 * row]) - sums[2 * row + 1]);
  }
};

struct SoftmaxOf {
  const float* max;
  const float* sum;
  std::int64_t max_stride, sum_stride;
};

// logits may be d_logits: a thread reads a chunk before it writes it. The target's column is whole in one chunk.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(std::int64_t cols, std::int64_t count, std::int64_t first_col, float scale, const float* loss_scale,
                    bool aligned, Source<T> logits, const std::int32_t* targets, SoftmaxOf of, Target<T> d_logits) {
  const std::int64_t row = blockIdx.x, begin = row * cols, end = begin + cols, last = begin + count;
  const float max = of.max[row * of.max_stride];
  const float of_target = targets[row] == kLeftOut ? 0.0F : scale * (loss_scale ? *loss_scale : 1.0F);
  const float factor = of_target / of.sum[row * of.sum_stride];
  const std::int64_t local = targets[row] - first_col;
  const std::int64_t target = local >= 0 && local < count ? begin + local : -1;
  over_span(logits, aligned, begin, end, [&]<class Access>(Access, const Chunk& c, const auto& words) {
    float v[kChunk];
    Access::values(logits, words, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      v[i] = c.at + i < last ? __expf(v[i] - max) * factor : 0.0F;
      if (c.at + i == target) v[i] -= of_target;
    }
    Access::store(d_logits, c, v);
  });
}

std::int64_t local_columns(std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col) {
  return std::clamp<std::int64_t>(valid_cols - first_col, 0, cols);
}

}  // namespace

void CudaDevice::cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale,
                                       In logits, const std::int32_t* targets, float* stats, float* loss) {
  const auto most = static_cast<std::int64_t>(workspace_bytes_ / sizeof(float));  // rows at a time
  auto* losses = workspace<float>(std::min(rows, most));
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(rows - first, most);
    by_type({logits}, [&]<class T>() {
      launch(forward_kernel<T>, grid_of(count), kThreads, 0, stream_, cols, valid_cols, first, Source<T>(logits),
             targets, stats, losses);
    });
    launch(loss_kernel<LossOfRow>, 1, kThreads, 0, stream_, count, scale, LossOfRow{losses}, loss);
  }
}

void CudaDevice::cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                   std::int64_t first_col, In logits, float* max) {
  by_type({logits}, [&]<class T>() {
    launch(max_kernel<T>, grid_of(rows), kThreads, 0, stream_, cols, local_columns(cols, valid_cols, first_col),
           Source<T>(logits), max);
  });
}

void CudaDevice::cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                       std::int64_t first_col, In logits, const std::int32_t* targets, const float* max,
                                       float* sums) {
  by_type({logits}, [&]<class T>() {
    launch(exp_sum_kernel<T>, grid_of(rows), kThreads, 0, stream_, cols, local_columns(cols, valid_cols, first_col),
           first_col, Source<T>(logits), targets, max, sums);
  });
}

void CudaDevice::cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) {
  launch(loss_kernel<LossOfSums>, 1, kThreads, 0, stream_, rows, scale, LossOfSums{sums}, loss);
}

void CudaDevice::cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                        std::int64_t first_col, double scale, const float* loss_scale, In logits,
                                        const std::int32_t* targets, const float* max, std::int64_t max_stride,
                                        const float* sum, std::int64_t sum_stride, Out d_logits) {
  REHEARSE_REQUIRE(logits.data != d_logits.data || logits.type == d_logits.type, "gradients in place of another type");
  by_type({logits, d_logits}, [&]<class T>() {
    launch(backward_kernel<T>, grid_of(rows), kThreads, 0, stream_, cols, local_columns(cols, valid_cols, first_col),
           first_col, static_cast<float>(scale), loss_scale, whole_rows(kChunk, {logits, d_logits}), Source<T>(logits),
           targets, SoftmaxOf{max, sum, max_stride, sum_stride}, Target<T>(d_logits));
  });
}

void CudaDevice::count_targets(std::int64_t n, const std::int32_t* targets, float* counted) {
  launch(count_kernel, 1, kThreads, 0, stream_, n, targets, counted);
}

void CudaDevice::mean_of_counted(const float* counted, float* loss) {
  launch(mean_kernel, 1, 1, 0, stream_, counted, loss);
}

}  // namespace rehearse::kernels::cuda
