// Parameter updates as torch.optim.AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) and torch.optim.SGD (dampening
// 0, weight decay added to the gradient); the sum of squares of a gradient, clipping and loss scaling. What changes
// from step to step is read from device memory. Bytes that must be moved, an element: AdamW with an fp32 gradient 28
// (read g, p, m, v; write p, m, v), with bf16 gradient and parameter and a master copy 28 too; SGD 12, with
// momentum 20. Moments of 16 bits take 8 bytes off AdamW, and 4 off SGD; those of 8 bits are in optimizer_codes.cu.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct AdamRule {
  float beta1, rest1, beta2, rest2, eps, weight_decay;
  const StepValues* step;
};
template <class TM>
struct AdamState {
  Target<float> weights;  // the master, or the parameter itself
  Target<TM> first, second;
};

// f.operator()<T>() for the type of moments.
template <class F>
void by_moments(DType type, F&& f) {
  REHEARSE_REQUIRE(type == DType::f32 || type == DType::bf16, "moments that are neither fp32 nor bf16");
  if (type == DType::bf16) return f.template operator()<__nv_bfloat16>();
  f.template operator()<float>();
}

// coefficient: null is 1; not a number: nothing is done. Values read before any is written: null `param` where the
// parameter is its own master.
template <class TG, class TM>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(std::int64_t n, bool aligned, AdamRule rule, Source<TG> grad, const float* coefficient,
                 AdamState<TM> state, Target<AnyType> param) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kChunk;
  const float by = coefficient ? *coefficient : 1.0F;
  if (at >= n || by != by) return;
  const float lr = rule.step->lr, step_size = lr / rule.step->correction1, keep = 1.0F - lr * rule.weight_decay;
  const float root_scale = 1.0F / sqrtf(rule.step->correction2);
  const auto work = [&]<class Access>(Access, const Chunk& c) {
    const auto g_words = Access::load(grad, c);
    const auto w_words = Access::load(state.weights, c);
    const auto m_words = Access::load(state.first, c);
    const auto v_words = Access::load(state.second, c);
    float g[kChunk], w[kChunk], m[kChunk], v[kChunk];
    Access::values(grad, g_words, g);
    Access::values(state.weights, w_words, w);
    Access::values(state.first, m_words, m);
    Access::values(state.second, v_words, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float d = g[i] * by;
      m[i] = rule.beta1 * m[i] + rule.rest1 * d;
      v[i] = rule.beta2 * v[i] + rule.rest2 * d * d;
      w[i] = w[i] * keep - step_size * m[i] / (sqrtf(v[i]) * root_scale + rule.eps);
    }
    Access::store(state.first, c, m);
    Access::store(state.second, c, v);
    Access::store(state.weights, c, w);
    if (param.there()) Access::store(param, c, w);
  };
  if (aligned && at + kChunk <= n) {
    work(Whole{}, Chunk{at, 0, kChunk});
  } else {
    work(Piecewise{}, clip(at, 0, n));
  }
}

struct SgdRule {
  float momentum, weight_decay;
  const StepValues* step;
};

template <class TG, class TM>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(std::int64_t n, bool aligned, SgdRule rule, Source<TG> grad, const float* coefficient,
               Target<float> weights, Target<TM> momentum, Target<AnyType> param) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kChunk;
  const float by = coefficient ? *coefficient : 1.0F, lr = rule.step->lr;
  if (at >= n || by != by) return;
  const auto work = [&]<class Access>(Access, const Chunk& c) {
    const auto g_words = Access::load(grad, c);
    const auto w_words = Access::load(weights, c);
    float g[kChunk], w[kChunk], m[kChunk] = {};
    if (momentum.there()) Access::values(momentum, Access::load(momentum, c), m);
    Access::values(grad, g_words, g);
    Access::values(weights, w_words, w);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      m[i] = rule.momentum * m[i] + (g[i] * by + rule.weight_decay * w[i]);
      w[i] -= lr * m[i];
    }
    if (momentum.there()) Access::store(momentum, c, m);
    Access::store(weights, c, w);
    if (param.there()) Access::store(param, c, w);
  };
  if (aligned && at + kChunk <= n) {
    work(Whole{}, Chunk{at, 0, kChunk});
  } else {
    work(Piecewise{}, clip(at, 0, n));
  }
}

// Blocks of a fixed number of elements, whose sums are added in order: the same sum on any GPU.
constexpr std::int64_t kMaxSums = 2048;

template <class T>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(std::int64_t n, std::int64_t block_elements, Source<T> x, double* sums) {
  __shared__ double shared[kThreads / 32];
  const std::int64_t begin = blockIdx.x * block_elements, end = begin + block_elements < n ? begin + block_elements : n;
  double total = 0;
  const auto add = [&]<class Access>(Access, const typename Access::template Loaded<T>& words) {
    float v[kChunk], sum = 0;
    Access::values(x, words, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += v[i] * v[i];
    total += static_cast<double>(sum);
  };
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kThreads) * kChunk;
  std::int64_t at = begin + static_cast<std::int64_t>(threadIdx.x) * kChunk;
  for (; x.aligned && at + 3 * kStep + kChunk <= end; at += 4 * kStep) {  // four loads on their way at once
    typename Source<T>::Raw words[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) words[u] = Whole::load(x, Chunk{at + u * kStep, 0, kChunk});
#pragma unroll
    for (int u = 0; u < 4; ++u) add(Whole{}, words[u]);
  }
  for (; at < end; at += kStep) add(Piecewise{}, Piecewise::load(x, clip(at, 0, end)));
  total = row_sum(total, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads) add_squares(int count, const double* sums, float* sum) {
  __shared__ double shared[kThreads / 32];
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) total += sums[i];
  total = row_sum(total, shared);
  if (threadIdx.x == 0) *sum = static_cast<float>(static_cast<double>(*sum) + total);
}

__global__ void clip_kernel(float max_norm, const float* sum, const float* loss_scale, float* coefficient) {
  const float s = loss_scale ? *loss_scale : 1.0F;
  float c = 1.0F / s;
  if (!isfinite(*sum)) {
    c = __uint_as_float(0x7FC00000U);
  } else if (s == 0) {
    c = 0;
  } else if (max_norm > 0) {
    const float clip = max_norm / (sqrtf(*sum) / s + 1e-6F);
    c = (clip < 1.0F ? clip : 1.0F) / s;
  }
  *coefficient = c;
}

__global__ void loss_scale_kernel(LossScaleRule rule, const float* coefficient, float* state) {
  const float c = *coefficient;
  if (c != c) {
    state[0] *= rule.backoff;
    state[1] = 0;
  } else if (state[1] + 1 >= static_cast<float>(rule.interval)) {
    const float grown = state[0] * rule.growth;
    if (isfinite(grown)) state[0] = grown;
    state[1] = 0;
  } else {
    state[1] += 1;
  }
}

}  // namespace

void CudaDevice::adamw(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out param, float* master,
                       Out exp_avg, Out exp_avg_sq) {
  const AdamRule rule{static_cast<float>(o.beta1),
                      static_cast<float>(1 - o.beta1),
                      static_cast<float>(o.beta2),
                      static_cast<float>(1 - o.beta2),
                      static_cast<float>(o.eps),
                      static_cast<float>(o.weight_decay),
                      o.step};
  REHEARSE_REQUIRE(master || param.type == DType::f32, "a half parameter without an fp32 copy");
  const Out weights = master ? Out(master) : param, copy = master ? param : Out();
  const bool aligned = whole_rows(kChunk, {grad, weights, exp_avg, exp_avg_sq, copy});
  REHEARSE_REQUIRE(exp_avg.type == exp_avg_sq.type, "moments of two types");
  if (exp_avg.type == DType::u8) return adamw_codes(n, o, grad, coefficient, weights, copy, exp_avg, exp_avg_sq);
  by_moments(exp_avg.type, [&]<class TM>() {
    const AdamState<TM> state{Target<float>(weights), Target<TM>(exp_avg), Target<TM>(exp_avg_sq)};
    by_type({grad}, [&]<class TG>() {
      launch(adamw_kernel<TG, TM>, grid_of(ceil_div(n, kThreads * kChunk)), kThreads, 0, stream_, n, aligned, rule,
             Source<TG>(grad), coefficient, state, Target<AnyType>(copy));
    });
  });
}

void CudaDevice::sgd(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out param, float* master,
                     Out momentum) {
  const SgdRule rule{static_cast<float>(o.momentum), static_cast<float>(o.weight_decay), o.step};
  REHEARSE_REQUIRE(master || param.type == DType::f32, "a half parameter without an fp32 copy");
  const Out weights = master ? Out(master) : param, copy = master ? param : Out();
  if (momentum.type == DType::u8) return sgd_codes(n, o, grad, coefficient, weights, copy, momentum);
  const bool aligned = whole_rows(kChunk, {grad, weights, momentum, copy});
  by_moments(momentum.type, [&]<class TM>() {
    by_type({grad}, [&]<class TG>() {
      launch(sgd_kernel<TG, TM>, grid_of(ceil_div(n, kThreads * kChunk)), kThreads, 0, stream_, n, aligned, rule,
             Source<TG>(grad), coefficient, Target<float>(weights), Target<TM>(momentum), Target<AnyType>(copy));
    });
  });
}

void CudaDevice::sum_squares(std::int64_t n, In x, float* sum) {
  if (n == 0) return;
  // Whole rounds of a block's four loads, so that all but the last block take only those.
  constexpr std::int64_t kRound = 4 * kThreads * kChunk;
  const std::int64_t block_elements = ceil_div(ceil_div(n, kMaxSums), kRound) * kRound;
  const std::int64_t blocks = ceil_div(n, block_elements);
  auto* sums = workspace<double>(blocks);
  by_type({x}, [&]<class T>() {
    launch(squares_kernel<T>, grid_of(blocks), kThreads, 0, stream_, n, block_elements, Source<T>(x), sums);
  });
  launch(add_squares, 1, kThreads, 0, stream_, static_cast<int>(blocks), static_cast<const double*>(sums), sum);
}

void CudaDevice::clip_coefficient(double max_norm, const float* sum, const float* loss_scale, float* coefficient) {
  launch(clip_kernel, 1, 1, 0, stream_, static_cast<float>(max_norm), sum, loss_scale, coefficient);
}

void CudaDevice::update_loss_scale(const LossScaleRule& rule, const float* coefficient, float* state) {
  launch(loss_scale_kernel, 1, 1, 0, stream_, rule, coefficient, state);
}

}  // namespace rehearse::kernels::cuda
