// Max pooling with any stride and padding (windows that do not overlap have a faster one, conv.cpp), and the mean of
// each map; and maps times a number each. A plane is one channel of one image; planes are independent.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {
namespace {

// The first of equals; a NaN is the maximum, as in torch.
void pool_plane(const PoolShape& s, const float* plane, float* y, std::int32_t* argmax) {
  for (std::int64_t oy = 0; oy < s.out_height(); ++oy) {
    const std::int64_t top = std::max<std::int64_t>(0, oy * s.stride - s.pad);
    const std::int64_t bottom = std::min(s.height, oy * s.stride - s.pad + s.window);
    for (std::int64_t ox = 0; ox < s.out_width(); ++ox) {
      const std::int64_t left = std::max<std::int64_t>(0, ox * s.stride - s.pad);
      const std::int64_t right = std::min(s.width, ox * s.stride - s.pad + s.window);
      std::int64_t best = top * s.width + left;
      for (std::int64_t row = top; row < bottom; ++row)
        for (std::int64_t at = row * s.width + left; at < row * s.width + right; ++at)
          if (plane[at] > plane[best] || plane[at] != plane[at]) best = at;
      *y++ = plane[best];
      *argmax++ = static_cast<std::int32_t>(best);
    }
  }
}

}  // namespace

void CpuKernels::max_pool_forward(const PoolShape& s, const float* x, float* y, std::int32_t* argmax) {
  const std::int64_t pixels = s.height * s.width, outputs = s.out_height() * s.out_width();
  pool_.ranges(s.batch * s.channels, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) pool_plane(s, x + p * pixels, y + p * outputs, argmax + p * outputs);
  });
}

void CpuKernels::max_pool_backward(const PoolShape& s, const float* dy, const std::int32_t* argmax, float* dx) {
  const std::int64_t pixels = s.height * s.width, outputs = s.out_height() * s.out_width();
  pool_.ranges(s.batch * s.channels, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      float* image = dx + p * pixels;
      std::fill_n(image, pixels, 0.0F);
      for (std::int64_t o = p * outputs; o < (p + 1) * outputs; ++o) image[argmax[o]] += dy[o];
    }
  });
}

void CpuKernels::average_pool_forward(std::int64_t planes, std::int64_t pixels, const float* x, float* y) {
  parallel(planes, std::max<std::int64_t>(1, kGrain / pixels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      double sum = 0;
      for (std::int64_t i = p * pixels; i < (p + 1) * pixels; ++i) sum += static_cast<double>(x[i]);
      y[p] = static_cast<float>(sum / static_cast<double>(pixels));
    }
  });
}

void CpuKernels::average_pool_backward(std::int64_t planes, std::int64_t pixels, const float* dy, float* dx) {
  parallel(planes, std::max<std::int64_t>(1, kGrain / pixels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) std::fill_n(dx + p * pixels, pixels, dy[p] / static_cast<float>(pixels));
  });
}

void CpuKernels::channel_scale_forward(std::int64_t planes, std::int64_t pixels, const float* x, const float* f,
                                       float* y) {
  parallel(planes, std::max<std::int64_t>(1, kGrain / pixels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      for (std::int64_t i = p * pixels; i < (p + 1) * pixels; ++i) y[i] = f[p] * x[i];
  });
}

void CpuKernels::channel_scale_backward(std::int64_t planes, std::int64_t pixels, const float* dy, const float* x,
                                        const float* f, float* dx, float* df) {
  parallel(planes, std::max<std::int64_t>(1, kGrain / pixels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      double sum = 0;
      for (std::int64_t i = p * pixels; i < (p + 1) * pixels; ++i) {
        sum += static_cast<double>(dy[i]) * static_cast<double>(x[i]);
        dx[i] = f[p] * dy[i];
      }
      df[p] = static_cast<float>(sum);
    }
  });
}

}  // namespace rehearse::kernels::cpu
