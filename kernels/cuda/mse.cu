// Mean squared error as torch.nn.MSELoss: the sum of squared differences, and its gradient. Bytes that must be moved,
// an element: forward those of the prediction and 4 (the target, fp32); backward those twice and 4.
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks of a fixed number of elements, whose sums are added in order: the same sum on any GPU.
constexpr std::int64_t kMaxSums = 2048;

template <class T>
__global__ void __launch_bounds__(kThreads) sums_kernel(std::int64_t n, std::int64_t block_elements, bool aligned,
                                                        Source<T> x, Source<float> target, double* sums) {
  __shared__ double shared[kThreads / 32];
  const std::int64_t begin = blockIdx.x * block_elements, end = begin + block_elements < n ? begin + block_elements : n;
  double total = 0;
  const auto add = [&]<class Access>(Access, const Chunk& c) {
    const auto x_words = Access::load(x, c);
    const auto target_words = Access::load(target, c);
    float v[kChunk], t[kChunk], sum = 0;
    Access::values(x, x_words, v);
    Access::values(target, target_words, t);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += (v[i] - t[i]) * (v[i] - t[i]);
    total += static_cast<double>(sum);
  };
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kThreads) * kChunk;
  for (std::int64_t at = begin + static_cast<std::int64_t>(threadIdx.x) * kChunk; at < end; at += kStep) {
    if (aligned && at + kChunk <= end) {
      add(Whole{}, Chunk{at, 0, kChunk});
    } else {
      add(Piecewise{}, clip(at, 0, end));
    }
  }
  total = row_sum(total, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads) loss_kernel(int count, double scale, const double* sums, float* loss) {
  __shared__ double shared[kThreads / 32];
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) total += sums[i];
  total = row_sum(total, shared);
  if (threadIdx.x == 0) *loss = static_cast<float>(static_cast<double>(*loss) + scale * total);
}

// x may be dx: a thread reads a chunk before it writes it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(std::int64_t n, bool aligned, float scale, const float* loss_scale, Source<T> x,
                    Source<float> target, Target<T> dx) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kChunk;
  if (at >= n) return;
  const float factor = 2 * scale * (loss_scale ? *loss_scale : 1.0F);
  const auto work = [&]<class Access>(Access, const Chunk& c) {
    const auto x_words = Access::load(x, c);
    const auto target_words = Access::load(target, c);
    float v[kChunk], t[kChunk];
    Access::values(x, x_words, v);
    Access::values(target, target_words, t);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = (v[i] - t[i]) * factor;
    Access::store(dx, c, v);
  };
  if (aligned && at + kChunk <= n) {
    work(Whole{}, Chunk{at, 0, kChunk});
  } else {
    work(Piecewise{}, clip(at, 0, n));
  }
}

}  // namespace

void CudaDevice::mse_forward(std::int64_t n, double scale, In x, const float* target, float* loss) {
  if (n == 0) return;
  constexpr std::int64_t kRound = static_cast<std::int64_t>(kThreads) * kChunk;
  const std::int64_t block_elements = ceil_div(ceil_div(n, kMaxSums), kRound) * kRound;
  const std::int64_t blocks = ceil_div(n, block_elements);
  auto* sums = workspace<double>(blocks);
  by_type({x}, [&]<class T>() {
    launch(sums_kernel<T>, grid_of(blocks), kThreads, 0, stream_, n, block_elements, whole_rows(kChunk, {x, target}),
           Source<T>(x), Source<float>(In(target)), sums);
  });
  launch(loss_kernel, 1, kThreads, 0, stream_, static_cast<int>(blocks), scale, static_cast<const double*>(sums), loss);
}

void CudaDevice::mse_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target,
                              Out dx) {
  if (n == 0) return;
  REHEARSE_REQUIRE(x.data != dx.data || x.type == dx.type, "gradients in place of another type");
  by_type({x, dx}, [&]<class T>() {
    launch(backward_kernel<T>, grid_of(ceil_div(n, kThreads * kChunk)), kThreads, 0, stream_, n,
           whole_rows(kChunk, {x, target, dx}), static_cast<float>(scale), loss_scale, Source<T>(x),
           Source<float>(In(target)), Target<T>(dx));
  });
}

}  // namespace rehearse::kernels::cuda
