// Batch normalisation (Ioffe and Szegedy 2015, arXiv 1502.03167). With x^ = (x - mean) / deviation, n = count, and over
// all elements of a channel, y = gamma x^ + beta and dx = gamma / deviation (dy - sum(dy) / n - x^ sum(dy x^) / n).
// Channels are independent; sums are made in double, image by image, and the variance is that of E[x^2] - E[x]^2, so
// that sums of several ranks can be added.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {
namespace {

struct ChannelStats {
  float mean, inverse;
};

ChannelStats stats_of(const BatchNormShape& s, const float* sums, std::int64_t channel) {
  const auto n = static_cast<double>(s.count);
  const double mean = static_cast<double>(sums[channel]) / n;
  const double variance = std::max(0.0, static_cast<double>(sums[s.channels + channel]) / n - mean * mean);
  return {static_cast<float>(mean), static_cast<float>(1 / std::sqrt(variance + s.eps))};
}

// body(first element, one past the last) of the channel in every image.
template <class Body>
void over_images(const BatchNormShape& s, std::int64_t channel, const Body& body) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const std::int64_t first = (b * s.channels + channel) * s.pixels;
    body(first, first + s.pixels);
  }
}

}  // namespace

template <class Body>
void CpuKernels::over_channels(const BatchNormShape& s, const Body& body) {
  parallel(s.channels, std::max<std::int64_t>(1, kGrain / (s.batch * s.pixels)),
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t c = begin; c < end; ++c) body(c);
           });
}

void CpuKernels::batch_norm_sums(const BatchNormShape& s, const float* x, float* sums) {
  over_channels(s, [&](std::int64_t c) {
    double sum = 0, squares = 0;
    over_images(s, c, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto v = static_cast<double>(x[i]);
        sum += v;
        squares += v * v;
      }
    });
    sums[c] = static_cast<float>(sum);
    sums[s.channels + c] = static_cast<float>(squares);
  });
}

void CpuKernels::batch_norm_normalise(const BatchNormShape& s, const float* x, const float* sums, const float* gamma,
                                      const float* beta, float* y) {
  over_channels(s, [&](std::int64_t c) {
    const auto [mean, inverse] = stats_of(s, sums, c);
    const float scale = gamma[c] * inverse, shift = beta[c];
    over_images(s, c, [&, m = mean](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = (x[i] - m) * scale + shift;
    });
  });
}

void CpuKernels::batch_norm_backward_sums(const BatchNormShape& s, const float* dy, const float* x, const float* sums,
                                          float* d_sums) {
  over_channels(s, [&](std::int64_t c) {
    const auto [mean, inverse] = stats_of(s, sums, c);
    double sum = 0, products = 0;
    over_images(s, c, [&, m = mean](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        sum += static_cast<double>(dy[i]);
        products += static_cast<double>(dy[i]) * static_cast<double>(x[i] - m);
      }
    });
    d_sums[c] = static_cast<float>(sum);
    d_sums[s.channels + c] = static_cast<float>(products * static_cast<double>(inverse));
  });
}

void CpuKernels::batch_norm_backward_input(const BatchNormShape& s, const float* dy, const float* x, const float* sums,
                                           const float* gamma, const float* d_sums, float* dx) {
  const auto n = static_cast<float>(s.count);
  over_channels(s, [&](std::int64_t c) {
    const auto [mean, inverse] = stats_of(s, sums, c);
    const float mean_dy = d_sums[c] / n, slope = d_sums[s.channels + c] / n * inverse, scale = gamma[c] * inverse;
    over_images(s, c, [&, m = mean](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) dx[i] = (dy[i] - mean_dy - (x[i] - m) * slope) * scale;
    });
  });
}

}  // namespace rehearse::kernels::cpu
