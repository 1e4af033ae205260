// LAMB's update (You et al. 2019, arXiv 1904.00962; the variant is sim/program/op.h's). Squares are added in double,
// blocks of fixed size in their order, so that no result depends on the number of threads.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_device.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr std::int64_t kLambBlock = 8192;

}  // namespace

void CpuDevice::lamb_moments(std::int64_t n, const Lamb& o, std::span<const LambTensor> tensors, In grad,
                             const float* coefficient, In value, float* exp_avg, float* exp_avg_sq, float* u,
                             float* squares) {
  std::fill_n(squares, 2 * tensors.size(), 0.0F);
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) {  // lamb_apply changes nothing either
    std::fill_n(u, n, 0.0F);
    return;
  }
  Widened w(*this);
  const float *g = w.read(grad, n), *p = w.read(value, n);
  const auto correction1 = static_cast<double>(o.step->correction1),
             correction2 = static_cast<double>(o.step->correction2);
  kernels_.parallel(n, kLambBlock, [=, &o](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double scaled = static_cast<double>(g[i] * factor);
      const double m = o.beta1 * static_cast<double>(exp_avg[i]) + (1 - o.beta1) * scaled;
      const double v = o.beta2 * static_cast<double>(exp_avg_sq[i]) + (1 - o.beta2) * scaled * scaled;
      exp_avg[i] = static_cast<float>(m);
      exp_avg_sq[i] = static_cast<float>(v);
      u[i] = static_cast<float>(m / correction1 / (std::sqrt(v / correction2) + o.eps) +
                                o.weight_decay * static_cast<double>(p[i]));
    }
  });
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const LambTensor& tensor = tensors[t];
    if (!tensor.counted || tensor.end <= tensor.begin) continue;
    const std::int64_t count = tensor.end - tensor.begin, blocks = (count + kLambBlock - 1) / kLambBlock;
    std::vector<std::array<double, 2>> sums(static_cast<std::size_t>(blocks));
    kernels_.parallel(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        std::array<double, 2>& sum = sums[static_cast<std::size_t>(b)];
        const std::int64_t first = tensor.begin + b * kLambBlock, last = std::min(first + kLambBlock, tensor.end);
        for (std::int64_t i = first; i < last; ++i) {
          sum[0] += static_cast<double>(p[i]) * static_cast<double>(p[i]);
          sum[1] += static_cast<double>(u[i]) * static_cast<double>(u[i]);
        }
      }
    });
    std::array<double, 2> all{};
    for (const auto& sum : sums) all[0] += sum[0], all[1] += sum[1];
    squares[2 * t] = static_cast<float>(all[0]);
    squares[2 * t + 1] = static_cast<float>(all[1]);
  }
}

void CpuDevice::lamb_apply(std::int64_t n, const Lamb& o, std::span<const LambTensor> tensors, const float* u,
                           const float* squares, const float* coefficient, Out param, float* master) {
  if (coefficient != nullptr && std::isnan(*coefficient)) return;
  Widened w(*this);
  float* p = master ? master : w.update(param, n);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const double weights = std::sqrt(static_cast<double>(squares[2 * t]));
    const double updates = std::sqrt(static_cast<double>(squares[2 * t + 1]));
    const double by = static_cast<double>(o.step->lr) * (weights > 0 && updates > 0 ? weights / updates : 1);
    const LambTensor tensor = tensors[t];
    kernels_.parallel(std::max<std::int64_t>(0, tensor.end - tensor.begin), kLambBlock,
                      [=](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = tensor.begin + begin; i < tensor.begin + end; ++i)
                          p[i] = static_cast<float>(static_cast<double>(p[i]) - by * static_cast<double>(u[i]));
                      });
  }
  if (master) convert(n, p, param);
}

}  // namespace rehearse::kernels::cpu
