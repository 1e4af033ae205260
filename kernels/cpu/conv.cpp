// Convolution as a matrix product over unfolded images (im2col, Chellapilla et al. 2006), and max pooling.
// The images of a batch are independent for outputs and input gradients; weight gradients are summed in image order.
// With groups (Krizhevsky et al. 2012; one map each: depthwise) there is a product for each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {
namespace {

// Of one group: the maps that it reads, and its patch of them. Groups are independent.
struct ConvSizes {
  std::int64_t out_height, out_width, out_pixels, group_in, group_out, image, group_image, patch;
  bool few;  // see add_runs

  explicit ConvSizes(const ConvShape& s)
      : out_height((s.height + 2 * s.pad - s.kernel) / s.stride + 1),
        out_width((s.width + 2 * s.pad - s.kernel) / s.stride + 1),
        out_pixels(out_height * out_width),
        group_in(s.c_in / s.groups),
        group_out(s.c_out / s.groups),
        image(s.c_in * s.height * s.width),
        group_image(group_in * s.height * s.width),
        patch(group_in * s.kernel * s.kernel),
        few(s.groups > 1 && group_in * group_out <= 16) {}
};

// body(input pixel, unfolded element, count) for runs along output rows: `count` output pixels whose input pixels are
// `stride` apart. Unfolded elements outside every run are padding.
template <class Body>
void over_patches(const ConvShape& s, const ConvSizes& z, const Body& body) {
  for (std::int64_t row = 0; row < z.patch; ++row) {
    const std::int64_t channel = row / (s.kernel * s.kernel), ky = row / s.kernel % s.kernel, kx = row % s.kernel;
    // Output columns whose input column stride * x + kx - pad lies in [0, width).
    const std::int64_t first = kx >= s.pad ? 0 : (s.pad - kx + s.stride - 1) / s.stride;
    const std::int64_t room = s.width - 1 + s.pad - kx;
    const std::int64_t last = room < 0 ? 0 : std::min(z.out_width, room / s.stride + 1);
    if (first >= last) continue;
    for (std::int64_t y = 0; y < z.out_height; ++y) {
      const std::int64_t in_y = y * s.stride + ky - s.pad;
      if (in_y < 0 || in_y >= s.height) continue;
      const std::int64_t in_x = first * s.stride + kx - s.pad;
      body((channel * s.height + in_y) * s.width + in_x, row * z.out_pixels + y * z.out_width + first, last - first);
    }
  }
}

// columns [patch, out_pixels] from an image.
void unfold(const ConvShape& s, const ConvSizes& z, const float* image, float* columns) {
  std::fill_n(columns, z.patch * z.out_pixels, 0.0f);
  over_patches(s, z, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) columns[out + i] = image[in + i * s.stride];
  });
}

// Of groups of few maps (depthwise: 1 to 1) a product has next to nothing to block: each run of pixels is multiplied
// where it lies, and nothing is unfolded. y [group_out, out_pixels] += w [group_out, patch] times the patches of an
// image.
void add_runs(const ConvShape& s, const ConvSizes& z, const float* image, const float* w, float* y) {
  over_patches(s, z, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
    const std::int64_t row = out / z.out_pixels, first = out % z.out_pixels;
    for (std::int64_t o = 0; o < z.group_out; ++o) {
      const float weight = w[o * z.patch + row];
      float* to = y + o * z.out_pixels + first;
      for (std::int64_t i = 0; i < count; ++i) to[i] += weight * image[in + i * s.stride];
    }
  });
}

void add_runs_backward(const ConvShape& s, const ConvSizes& z, const float* dy, const float* w, float* image) {
  over_patches(s, z, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
    const std::int64_t row = out / z.out_pixels, first = out % z.out_pixels;
    for (std::int64_t o = 0; o < z.group_out; ++o) {
      const float weight = w[o * z.patch + row];
      const float* d = dy + o * z.out_pixels + first;
      for (std::int64_t i = 0; i < count; ++i) image[in + i * s.stride] += weight * d[i];
    }
  });
}

// dw [group_out, patch] += of one image.
void add_runs_weight(const ConvShape& s, const ConvSizes& z, const float* dy, const float* image, float* dw) {
  over_patches(s, z, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
    const std::int64_t row = out / z.out_pixels, first = out % z.out_pixels;
    for (std::int64_t o = 0; o < z.group_out; ++o) {
      const float* d = dy + o * z.out_pixels + first;
      float sum = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += d[i] * image[in + i * s.stride];
      dw[o * z.patch + row] += sum;
    }
  });
}

void add_bias_gradient(const ConvSizes& z, const float* dy, float* d_bias) {
  *d_bias += sum_terms(z.out_pixels, [=](std::int64_t i, auto tag) { return get(dy + i, tag); });
}

}  // namespace

void CpuKernels::conv_forward(const ConvShape& s, const float* x, const float* w, const float* bias, float* y) {
  const ConvSizes z(s);
  pool_.ranges(s.batch, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* columns = z.few ? nullptr : scratch(worker, z.patch * z.out_pixels);
    for (std::int64_t b = begin; b < end; ++b) {
      float* out = y + b * s.c_out * z.out_pixels;
      for (std::int64_t c = 0; c < s.c_out; ++c) std::fill_n(out + c * z.out_pixels, z.out_pixels, bias ? bias[c] : 0);
      for (std::int64_t g = 0; g < s.groups; ++g) {
        const float *image = x + b * z.image + g * z.group_image, *weights = w + g * z.group_out * z.patch;
        float* maps = out + g * z.group_out * z.out_pixels;
        if (z.few) {
          add_runs(s, z, image, weights, maps);
          continue;
        }
        unfold(s, z, image, columns);
        multiply(z.group_out, z.out_pixels, z.patch, {weights, z.patch}, {columns, z.out_pixels}, true, maps,
                 z.out_pixels);
      }
    }
  });
}

void CpuKernels::conv_backward_input(const ConvShape& s, const float* dy, const float* w, float* dx) {
  const ConvSizes z(s);
  pool_.ranges(s.batch, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* columns = z.few ? nullptr : scratch(worker, z.patch * z.out_pixels);
    for (std::int64_t b = begin; b < end; ++b) {
      std::fill_n(dx + b * z.image, z.image, 0.0f);
      for (std::int64_t g = 0; g < s.groups; ++g) {
        float* image = dx + b * z.image + g * z.group_image;
        const float *d = dy + (b * s.c_out + g * z.group_out) * z.out_pixels, *weights = w + g * z.group_out * z.patch;
        if (z.few) {
          add_runs_backward(s, z, d, weights, image);
          continue;
        }
        multiply(z.patch, z.out_pixels, z.group_out, {weights, z.patch, true}, {d, z.out_pixels}, false, columns,
                 z.out_pixels);
        over_patches(s, z, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) image[in + i * s.stride] += columns[out + i];
        });
      }
    }
  });
}

// Split over output channels, of one group; every worker unfolds every image of its group.
void CpuKernels::conv_backward_weight(const ConvShape& s, const float* dy, const float* x, float* dw, float* d_bias) {
  const ConvSizes z(s);
  const std::int64_t at_once = s.groups > 1 ? z.group_out : 1;  // channels that stay together
  pool_.ranges(s.c_out / at_once, std::max<std::int64_t>(1, 16 / at_once),
               [&](std::int64_t begin, std::int64_t end, int worker) {
                 float* columns = z.few ? nullptr : scratch(worker, z.patch * z.out_pixels);
                 for (std::int64_t b = 0; b < s.batch; ++b) {
                   const float* maps = dy + b * s.c_out * z.out_pixels;
                   for (std::int64_t first = begin * at_once; first < end * at_once;) {
                     const std::int64_t group = first / z.group_out;
                     const std::int64_t last = std::min(end * at_once, (group + 1) * z.group_out);
                     const float *image = x + b * z.image + group * z.group_image, *d = maps + first * z.out_pixels;
                     if (z.few) {
                       add_runs_weight(s, z, d, image, dw + first * z.patch);
                     } else {
                       unfold(s, z, image, columns);
                       multiply(last - first, z.patch, z.out_pixels, {d, z.out_pixels}, {columns, z.out_pixels, true},
                                true, dw + first * z.patch, z.patch);
                     }
                     first = last;
                   }
                   for (std::int64_t c = begin * at_once; d_bias && c < end * at_once; ++c)
                     add_bias_gradient(z, maps + c * z.out_pixels, d_bias + c);
                 }
               });
}

namespace {

// The larger of two candidates; the first of equals, a NaN before all.
struct Maximum {
  float value;
  std::int32_t pixel;

  void take(float x, std::int32_t at) {
    const bool better = x > value || x != x;
    value = better ? x : value;
    pixel = better ? at : pixel;
  }
};

// One row of outputs from the `window` input rows from pixel `first` on.
void pool_row(std::int32_t outputs, std::int32_t window, std::int32_t width, std::int32_t first, const float* plane,
              float* __restrict y, std::int32_t* __restrict argmax) {
  if (window == 2) {  // the common case, in a form the compiler vectorises
    const float *top = plane + first, *bottom = top + width;
    for (std::int32_t o = 0; o < outputs; ++o) {
      Maximum best{top[2 * o], first + 2 * o};
      best.take(top[2 * o + 1], first + 2 * o + 1);
      best.take(bottom[2 * o], first + width + 2 * o);
      best.take(bottom[2 * o + 1], first + width + 2 * o + 1);
      y[o] = best.value;
      argmax[o] = best.pixel;
    }
    return;
  }
  for (std::int32_t o = 0; o < outputs; ++o) {
    const std::int32_t corner = first + o * window;
    Maximum best{plane[corner], corner};
    for (std::int32_t row = corner; row < corner + window * width; row += width) {
      for (std::int32_t pixel = row; pixel < row + window; ++pixel) best.take(plane[pixel], pixel);
    }
    y[o] = best.value;
    argmax[o] = best.pixel;
  }
}

}  // namespace

// argmax is the pixel within its own plane (y * width + x); the first of equals; a NaN is the maximum, as in torch.
void CpuKernels::pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                              std::int64_t window, const float* x, float* y, std::int32_t* argmax) {
  const std::int64_t out_height = height / window, out_width = width / window;
  pool_.ranges(batch * channels * out_height, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* plane = x + row / out_height * height * width;
      const std::int64_t first = row % out_height * window * width, out = row * out_width;
      pool_row(static_cast<std::int32_t>(out_width), static_cast<std::int32_t>(window),
               static_cast<std::int32_t>(width), static_cast<std::int32_t>(first), plane, y + out, argmax + out);
    }
  });
}

void CpuKernels::pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                               std::int64_t window, const float* dy, const std::int32_t* argmax, float* dx) {
  const std::int64_t outputs = (height / window) * (width / window);
  pool_.ranges(batch * channels, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      float* image = dx + plane * height * width;
      std::fill_n(image, height * width, 0.0f);
      for (std::int64_t o = 0; o < outputs; ++o) image[argmax[plane * outputs + o]] += dy[plane * outputs + o];
    }
  });
}

}  // namespace rehearse::kernels::cpu
