// Parameter updates as torch.optim.AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) and torch.optim.SGD (dampening
// 0, weight decay added to the gradient), and the sum of squares of a gradient. Moments of 16 or 8 bits are widened and
// rounded back in blocks that stay in the nearest cache, so that only these bits go to memory and back.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/half_convert.h"
#include "sim/base/moment_codes.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr std::int64_t kUpdateGrain = 8192, kWidened = 1024;
static_assert(kUpdateGrain % kWidened == 0 && kWidened % kMomentBlock == 0, "8-bit moments are cut at blocks");

// A moment, or none; of 8 bits with the largest values of its blocks.
struct StoredMoment {
  Out moment;
  bool is_signed = true;
  float* largest = nullptr;
};

// The elements of a moment from `at` on as fp32, which `block` has room for if they are of fewer bits; null: none.
class WideMoment {
 public:
  explicit WideMoment(const StoredMoment& stored) : stored_(stored) {}
  float* read(std::int64_t at, std::int64_t count) {
    const Out& moment = stored_.moment;
    if (moment.type == DType::f32) return moment ? static_cast<float*>(moment.data) + at : nullptr;
    if (moment.type == DType::u8) {
      blocks(at, count, [&](std::uint8_t* codes, float& largest, float* block, std::int64_t n) {
        decode_moments(stored_.is_signed, codes, largest, n, block);
      });
    } else {
      widen(moment.type, static_cast<const std::uint16_t*>(moment.data) + at, count, block_.data());
    }
    return block_.data();
  }
  void write_back(std::int64_t at, std::int64_t count) {
    const Out& moment = stored_.moment;
    if (moment.type == DType::u8) {
      blocks(at, count, [&](std::uint8_t* codes, float& largest, const float* block, std::int64_t n) {
        encode_moments(stored_.is_signed, block, n, codes, largest);
      });
    } else if (moment.type != DType::f32) {
      narrow(moment.type, block_.data(), count, static_cast<std::uint16_t*>(moment.data) + at);
    }
  }

 private:
  template <class Body>
  void blocks(std::int64_t at, std::int64_t count, const Body& body) {
    auto* codes = static_cast<std::uint8_t*>(stored_.moment.data) + at;
    for (std::int64_t i = 0; i < count; i += kMomentBlock)
      body(codes + i, stored_.largest[(at + i) / kMomentBlock], block_.data() + i, std::min(kMomentBlock, count - i));
  }

  const StoredMoment& stored_;
  std::array<float, kWidened> block_;
};

// body(at, count, first, second) over [begin, end): at once if the moments are fp32.
template <class Body>
void with_moments(std::int64_t begin, std::int64_t end, const StoredMoment& first, const StoredMoment& second,
                  const Body& body) {
  const bool wide = first.moment.type == DType::f32 && second.moment.type == DType::f32;
  const std::int64_t block = wide ? end - begin : kWidened;
  WideMoment wide_first(first), wide_second(second);
  for (std::int64_t at = begin; at < end; at += block) {
    const std::int64_t count = std::min(block, end - at);
    body(at, count, wide_first.read(at, count), wide_second.read(at, count));
    wide_first.write_back(at, count);
    wide_second.write_back(at, count);
  }
}

}  // namespace

void CpuKernels::adamw(std::int64_t n, const AdamW& o, const float* grad, float grad_scale, float* param, Out exp_avg,
                       Out exp_avg_sq) {
  const auto lr = static_cast<double>(o.step->lr);
  const auto step_size = static_cast<float>(lr / static_cast<double>(o.step->correction1));
  const auto keep = static_cast<float>(1 - lr * o.weight_decay);
  const auto root_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(o.step->correction2)));
  const auto eps = static_cast<float>(o.eps);
  const auto beta1 = static_cast<float>(o.beta1), rest1 = static_cast<float>(1 - o.beta1);
  const auto beta2 = static_cast<float>(o.beta2), rest2 = static_cast<float>(1 - o.beta2);
  const auto update = [=](std::int64_t at, std::int64_t count, float* exp_avg_at, float* exp_avg_sq_at) {
    const float* __restrict g = grad + at;
    float* __restrict p = param + at;
    float* __restrict m = exp_avg_at;
    float* __restrict v = exp_avg_sq_at;
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = g[i] * grad_scale;
      const float first = beta1 * m[i] + rest1 * d, second = beta2 * v[i] + rest2 * d * d;
      m[i] = first;
      v[i] = second;
      p[i] = p[i] * keep - step_size * first / (std::sqrt(second) * root_scale + eps);
    }
  };
  const StoredMoment first{exp_avg, true, o.exp_avg_largest}, second{exp_avg_sq, false, o.exp_avg_sq_largest};
  pool_.ranges(n, kUpdateGrain,
               [=](std::int64_t begin, std::int64_t end, int) { with_moments(begin, end, first, second, update); });
}

void CpuKernels::sgd(std::int64_t n, const Sgd& o, const float* grad, float grad_scale, float* param, Out momentum) {
  const float lr = o.step->lr;
  const auto factor = static_cast<float>(o.momentum);
  const auto decay = static_cast<float>(o.weight_decay);
  const auto update = [=](std::int64_t at, std::int64_t count, float* momentum_at, float*) {
    const float* __restrict g = grad + at;
    float* __restrict p = param + at;
    float* __restrict velocity = momentum_at;
    if (velocity) {
      for (std::int64_t i = 0; i < count; ++i) {
        const float v = factor * velocity[i] + (g[i] * grad_scale + decay * p[i]);
        velocity[i] = v;
        p[i] -= lr * v;
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) p[i] -= lr * (g[i] * grad_scale + decay * p[i]);
    }
  };
  const StoredMoment stored{momentum, true, o.momentum_largest};
  pool_.ranges(n, kUpdateGrain,
               [=](std::int64_t begin, std::int64_t end, int) { with_moments(begin, end, stored, {}, update); });
}

void CpuKernels::outer_mean(std::int64_t n, std::int64_t workers, const float* sum, float* value) {
  const auto count = static_cast<float>(workers);
  pool_.ranges(n, kUpdateGrain, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) value[i] = sum[i] / count;
  });
}

void CpuKernels::outer_difference(std::int64_t n, const float* value, const float* outer, float* difference) {
  pool_.ranges(n, kUpdateGrain, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) difference[i] = outer[i] - value[i];
  });
}

void CpuKernels::outer_update(std::int64_t n, const Outer& o, const float* sum, float* outer, float* momentum,
                              float* value) {
  const auto workers = static_cast<float>(o.workers), lr = static_cast<float>(o.lr), mu = static_cast<float>(o.mu);
  pool_.ranges(n, kUpdateGrain, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float d = sum[i] / workers;
      float along = d;
      if (momentum) {
        momentum[i] = mu * momentum[i] + d;
        along = d + mu * momentum[i];
      }
      outer[i] -= lr * along;
      value[i] = outer[i];
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
