// Max pooling over windows that do not overlap. argmax is the pixel within its own plane (y * width + x): the first of
// equals; a NaN is the maximum, as in torch. An input pixel lies in at most one window, so that the backward pass
// gathers. Bytes that must be moved: each operand once.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct PoolShape {
  std::int64_t planes;
  int height, width, window, out_height, out_width;
};
PoolShape shape_of(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                   std::int64_t window) {
  return {batch * channels,         static_cast<int>(height),          static_cast<int>(width),
          static_cast<int>(window), static_cast<int>(height / window), static_cast<int>(width / window)};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_forward_kernel(PoolShape s, Source<T> x, Target<T> y, std::int32_t* argmax) {
  const std::int64_t outputs = static_cast<std::int64_t>(s.out_height) * s.out_width;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.planes * outputs) return;
  const std::int64_t plane = i / outputs;
  const int in_plane = static_cast<int>(i - plane * outputs);
  const int corner = in_plane / s.out_width * s.window * s.width + in_plane % s.out_width * s.window;
  const std::int64_t base = plane * s.height * s.width;
  float best = x.get(base + corner);
  int pixel = corner;
  for (int row = 0; row < s.window; ++row) {
    for (int col = 0; col < s.window; ++col) {
      const int at = corner + row * s.width + col;
      const float v = x.get(base + at);
      if (v > best || v != v) {
        best = v;
        pixel = at;
      }
    }
  }
  y.put(i, best);
  argmax[i] = pixel;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_backward_kernel(PoolShape s, Source<T> dy, const std::int32_t* argmax, Target<T> dx) {
  const std::int64_t pixels = static_cast<std::int64_t>(s.height) * s.width;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.planes * pixels) return;
  const std::int64_t plane = i / pixels;
  const int pixel = static_cast<int>(i - plane * pixels);
  const int row = pixel / s.width / s.window, col = pixel % s.width / s.window;
  float v = 0;
  if (row < s.out_height && col < s.out_width) {
    const std::int64_t out = (plane * s.out_height + row) * s.out_width + col;
    if (argmax[out] == pixel) v = dy.get(out);
  }
  dx.put(i, v);
}

}  // namespace

void CudaDevice::pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                              std::int64_t window, In x, Out y, std::int32_t* argmax) {
  const PoolShape s = shape_of(batch, channels, height, width, window);
  const std::int64_t outputs = s.planes * s.out_height * s.out_width;
  by_type({x, y}, [&]<class T>() {
    launch(pool_forward_kernel<T>, grid_of(ceil_div(outputs, kThreads)), kThreads, 0, stream_, s, Source<T>(x),
           Target<T>(y), argmax);
  });
}

void CudaDevice::pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                               std::int64_t window, In dy, const std::int32_t* argmax, Out dx) {
  const PoolShape s = shape_of(batch, channels, height, width, window);
  by_type({dy, dx}, [&]<class T>() {
    launch(pool_backward_kernel<T>, grid_of(ceil_div(s.planes * height * width, kThreads)), kThreads, 0, stream_, s,
           Source<T>(dy), argmax, Target<T>(dx));
  });
}

}  // namespace rehearse::kernels::cuda
