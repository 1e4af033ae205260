// Parameter updates as torch.optim.AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) and torch.optim.SGD (dampening
// 0, weight decay added to the gradient), and the sum of squares of a gradient.
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr std::int64_t kUpdateGrain = 8192;

}  // namespace

void CpuKernels::adamw(std::int64_t n, const AdamW& o, const float* grad, float grad_scale, float* param,
                       float* exp_avg, float* exp_avg_sq) {
  const auto lr = static_cast<double>(o.step->lr);
  const auto step_size = static_cast<float>(lr / static_cast<double>(o.step->correction1));
  const auto keep = static_cast<float>(1 - lr * o.weight_decay);
  const auto root_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(o.step->correction2)));
  const auto eps = static_cast<float>(o.eps);
  const auto beta1 = static_cast<float>(o.beta1), rest1 = static_cast<float>(1 - o.beta1);
  const auto beta2 = static_cast<float>(o.beta2), rest2 = static_cast<float>(1 - o.beta2);
  pool_.ranges(n, kUpdateGrain, [=](std::int64_t begin, std::int64_t end, int) {
    const float* __restrict g = grad;
    float* __restrict p = param;
    float* __restrict m = exp_avg;
    float* __restrict v = exp_avg_sq;
    for (std::int64_t i = begin; i < end; ++i) {
      const float d = g[i] * grad_scale;
      const float first = beta1 * m[i] + rest1 * d, second = beta2 * v[i] + rest2 * d * d;
      m[i] = first;
      v[i] = second;
      p[i] = p[i] * keep - step_size * first / (std::sqrt(second) * root_scale + eps);
    }
  });
}

void CpuKernels::sgd(std::int64_t n, const Sgd& o, const float* grad, float grad_scale, float* param, float* momentum) {
  const float lr = o.step->lr;
  const auto factor = static_cast<float>(o.momentum);
  const auto decay = static_cast<float>(o.weight_decay);
  pool_.ranges(n, kUpdateGrain, [=](std::int64_t begin, std::int64_t end, int) {
    const float* __restrict g = grad;
    float* __restrict p = param;
    float* __restrict velocity = momentum;
    if (velocity) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float v = factor * velocity[i] + (g[i] * grad_scale + decay * p[i]);
        velocity[i] = v;
        p[i] -= lr * v;
      }
    } else {
      for (std::int64_t i = begin; i < end; ++i) p[i] -= lr * (g[i] * grad_scale + decay * p[i]);
    }
  });
}

// Blocks of fixed size, added in order: the same sum for any number of threads.
double CpuKernels::sum_squares(std::int64_t n, const float* x) {
  constexpr std::int64_t kBlock = 32768, kWays = 16;
  std::vector<double> sums(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
  pool_.ranges(n, kBlock, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end; block += kBlock) {
      double ways[kWays] = {};
      const std::int64_t last = std::min(end, block + kBlock), whole = block + (last - block) / kWays * kWays;
      for (std::int64_t i = block; i < whole; i += kWays) {
        for (std::int64_t k = 0; k < kWays; ++k)
          ways[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
      }
      for (std::int64_t i = whole; i < last; ++i) ways[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      double total = 0;
      for (const double way : ways) total += way;
      sums[static_cast<std::size_t>(block / kBlock)] = total;
    }
  });
  double total = 0;
  for (const double one : sums) total += one;
  return total;
}

}  // namespace rehearse::kernels::cpu
