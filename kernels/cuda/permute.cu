// Rows between the order of tokens and that of experts. A row of threads a row that is written: which token it is of is
// looked up in a list, in the workspace, that a first kernel makes of the places. Bytes they must move: each row once
// each way.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kListThreads = 256;

__global__ void __launch_bounds__(kListThreads) clear_list(std::int64_t rows, std::int32_t* choices) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kListThreads + threadIdx.x;
  if (i < rows) choices[i] = -1;
}

// choices [rows]: which of the tokens' choices a row is of. Of choices that have no row the weight has no gradient.
__global__ void __launch_bounds__(kListThreads)
    list_choices(PermuteShape s, const std::int32_t* places, std::int32_t* choices, float* d_weights) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kListThreads + threadIdx.x;
  if (i >= s.tokens * s.top_k) return;
  const std::int32_t row = places[i];
  if (row >= 0 && row < s.rows)
    choices[row] = static_cast<std::int32_t>(i);
  else if (d_weights != nullptr)
    d_weights[i] = 0;
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    permute_kernel(PermuteShape s, bool whole_rows, Source<T> x, const std::int32_t* choices, Target<T> y) {
  over_rows(s.rows, s.cols, whole_rows, [&]<class Access>(Access, std::int64_t row, const Chunk& c) {
    const std::int32_t choice = choices[row];
    float v[kChunk] = {};
    if (choice >= 0) Access::values(x, Access::load(x, in_row(c, choice / s.top_k, s.cols)), v);
    Access::store(y, in_row(c, row, s.cols), v);
  });
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    unpermute_kernel(PermuteShape s, bool whole_rows, Source<T> y, const std::int32_t* places, const float* weights,
                     Target<T> out) {
  over_rows(s.tokens, s.cols, whole_rows, [&]<class Access>(Access, std::int64_t token, const Chunk& c) {
    float sum[kChunk] = {}, v[kChunk];
    for (std::int64_t k = token * s.top_k; k < (token + 1) * s.top_k; ++k) {
      if (places[k] < 0 || places[k] >= s.rows) continue;
      Access::values(y, Access::load(y, in_row(c, places[k], s.cols)), v);
      const float w = weights != nullptr ? weights[k] : 1.0F;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum[i] += v[i] * w;
    }
    Access::store(out, in_row(c, token, s.cols), sum);
  });
}

// A block a row, whose products with the token's gradient are the gradient of its weight.
template <class T>
__global__ void __launch_bounds__(kListThreads)
    unpermute_backward_kernel(PermuteShape s, Source<T> d_out, Source<T> y, const std::int32_t* choices,
                              const float* weights, Target<T> d_y, float* d_weights) {
  __shared__ float shared[kListThreads / 32];
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const std::int32_t choice = choices[row];
  const float w = choice >= 0 ? weights[choice] : 0.0F;
  float dot = 0;
  for (std::int64_t c = threadIdx.x; c < s.cols; c += kListThreads) {
    const float d = choice >= 0 ? d_out.get(choice / s.top_k * s.cols + c) : 0.0F;
    if (choice >= 0) dot += d * y.get(row * s.cols + c);
    d_y.put(row * s.cols + c, d * w);
  }
  dot = row_sum(dot, shared);
  if (choice >= 0 && threadIdx.x == 0) d_weights[choice] = dot;
}

void make_list(const PermuteShape& s, const std::int32_t* places, std::int32_t* choices, float* d_weights,
               const Stream& stream) {
  launch(clear_list, grid_of(ceil_div(s.rows, kListThreads)), kListThreads, 0, stream, s.rows, choices);
  launch(list_choices, grid_of(ceil_div(s.tokens * s.top_k, kListThreads)), kListThreads, 0, stream, s, places, choices,
         d_weights);
}

}  // namespace

void CudaDevice::permute(const PermuteShape& s, In x, const std::int32_t* places, Out y) {
  auto* choices = workspace<std::int32_t>(s.rows);
  make_list(s, places, choices, nullptr, stream_);
  const auto [grid, block] = row_grid(s.rows, s.cols);
  by_type({x, y}, [&]<class T>() {
    launch(permute_kernel<T>, grid, block, 0, stream_, s, whole_rows(s.cols, {x, y}), Source<T>(x), choices,
           Target<T>(y));
  });
}

void CudaDevice::unpermute(const PermuteShape& s, In y, const std::int32_t* places, const float* weights, Out out) {
  const auto [grid, block] = row_grid(s.tokens, s.cols);
  by_type({y, out}, [&]<class T>() {
    launch(unpermute_kernel<T>, grid, block, 0, stream_, s, whole_rows(s.cols, {y, out}), Source<T>(y), places, weights,
           Target<T>(out));
  });
}

void CudaDevice::unpermute_backward(const PermuteShape& s, In d_out, In y, const std::int32_t* places,
                                    const float* weights, Out d_y, float* d_weights) {
  auto* choices = workspace<std::int32_t>(s.rows);
  make_list(s, places, choices, d_weights, stream_);
  by_type({d_out, y, d_y}, [&]<class T>() {
    launch(unpermute_backward_kernel<T>, grid_of(s.rows), kListThreads, 0, stream_, s, Source<T>(d_out), Source<T>(y),
           choices, weights, Target<T>(d_y), d_weights);
  });
}

}  // namespace rehearse::kernels::cuda
