// Convolution as a matrix product whose operands are read from the images where they lie (implicit GEMM; nothing is
// unfolded in memory), on the fp32 units for every operand type. With k = (channel, ky, kx) and an output pixel (y, x):
//   forward   y[o, pixel]     = sum over k of w[o, k] x[k at pixel]           columns: pixels of all images
//   input     dx[c, in pixel] = sum over (o, ky, kx) of w[o, c, ky, kx] dy[o at the pixel that reads it]
//   weight    dw[o, k]       += sum over (image, pixel) of dy[o, pixel] x[k at pixel], in slabs added in order
// With groups there is such a product for each, of its channels alone; blockIdx.z is (group, slab).
// Operations that must be done: 2 batch c_out pixels (c_in / groups) kernel^2 each. Left out: matrix units (images are
// for small models here).
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kTileM = 64, kTileN = 64, kTileK = 16, kThreads = 256, kEach = 4;  // a thread has 4 x 4 results

// n / divisor for n in [0, 2^31) and divisor in [1, 2^31): n m / 2^(32 + shift) with m just above 2^(32 + shift) /
// divisor (Granlund and Montgomery 1994).
struct Divisor {
  unsigned divisor = 1, multiplier = 0, shift = 0;

  explicit Divisor(std::int64_t d) : divisor(static_cast<unsigned>(d)) {
    REHEARSE_REQUIRE(d > 0 && d < (std::int64_t{1} << 31), "a convolution of " + std::to_string(d));
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    multiplier =
        static_cast<unsigned>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - divisor)) / divisor + 1);
  }
  __device__ unsigned quotient(unsigned n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

struct Geometry {
  int c_in, c_out, group_in, group_out, height, width, kernel, stride, pad, out_height, out_width;
  Divisor pixels, row, image_pixels, image_row, window, side,
      step;  // out pixels, out width, in pixels, in width, k^2, k, stride

  explicit Geometry(const ConvShape& s)
      : c_in(static_cast<int>(s.c_in)),
        c_out(static_cast<int>(s.c_out)),
        group_in(static_cast<int>(s.c_in / s.groups)),
        group_out(static_cast<int>(s.c_out / s.groups)),
        height(static_cast<int>(s.height)),
        width(static_cast<int>(s.width)),
        kernel(static_cast<int>(s.kernel)),
        stride(static_cast<int>(s.stride)),
        pad(static_cast<int>(s.pad)),
        out_height(static_cast<int>((s.height + 2 * s.pad - s.kernel) / s.stride + 1)),
        out_width(static_cast<int>((s.width + 2 * s.pad - s.kernel) / s.stride + 1)),
        pixels(std::int64_t{out_height} * out_width),
        row(out_width),
        image_pixels(s.height * s.width),
        image_row(s.width),
        window(s.kernel * s.kernel),
        side(s.kernel),
        step(s.stride) {}
  __host__ __device__ int out_pixels() const { return out_height * out_width; }
  __host__ __device__ int in_pixels() const { return height * width; }
  __host__ __device__ int patch() const { return group_in * kernel * kernel; }
};

// Element k of the patch that output pixel `pixel` of an image reads for a group; zero outside the image.
template <class T>
__device__ float patch_element(const Geometry& g, const Source<T>& x, unsigned group, unsigned image, unsigned pixel,
                               unsigned k) {
  const unsigned in_group = g.window.quotient(k), in_window = k - in_group * g.window.divisor;
  const unsigned channel = group * g.group_in + in_group;
  const unsigned ky = g.side.quotient(in_window), kx = in_window - ky * g.side.divisor;
  const unsigned oy = g.row.quotient(pixel), ox = pixel - oy * g.row.divisor;
  const int y = static_cast<int>(oy) * g.stride + static_cast<int>(ky) - g.pad;
  const int col = static_cast<int>(ox) * g.stride + static_cast<int>(kx) - g.pad;
  if (y < 0 || y >= g.height || col < 0 || col >= g.width) return 0;
  return x.get(((static_cast<std::int64_t>(image) * g.c_in + channel) * g.height + y) * g.width + col);
}

// The three products: a(m, k), b(k, n) of a group, and where a result goes. n runs over all images where it means
// pixels.
template <class T>
struct Forward {
  Geometry g;
  Source<T> x, w, bias;
  Target<T> y;

  __device__ float a(unsigned group, unsigned m, unsigned k) const {
    return w.get(static_cast<std::int64_t>(group * g.group_out + m) * g.patch() + k);
  }
  __device__ float b(unsigned group, unsigned k, unsigned n) const {
    const unsigned image = g.pixels.quotient(n);
    return patch_element(g, x, group, image, n - image * g.pixels.divisor, k);
  }
  __device__ void put(unsigned group, unsigned m, unsigned n, unsigned, float v) const {
    const unsigned image = g.pixels.quotient(n), channel = group * g.group_out + m;
    if (bias.there()) v += bias.get(channel);
    y.put((static_cast<std::int64_t>(image) * g.c_out + channel) * g.out_pixels() + (n - image * g.pixels.divisor), v);
  }
};

template <class T>
struct BackwardInput {  // k = (o, ky, kx)
  Geometry g;
  Source<T> dy, w;
  Target<T> dx;

  __device__ float a(unsigned group, unsigned m, unsigned k) const {
    const unsigned o = g.window.quotient(k);
    return w.get((static_cast<std::int64_t>(group * g.group_out + o) * g.group_in + m) * g.window.divisor +
                 (k - o * g.window.divisor));
  }
  __device__ float b(unsigned group, unsigned k, unsigned n) const {
    const unsigned o = g.window.quotient(k), in_window = k - o * g.window.divisor;
    const unsigned ky = g.side.quotient(in_window), kx = in_window - ky * g.side.divisor;
    const unsigned image = g.image_pixels.quotient(n), pixel = n - image * g.image_pixels.divisor;
    const unsigned row = g.image_row.quotient(pixel), col = pixel - row * g.image_row.divisor;
    const int y = static_cast<int>(row + static_cast<unsigned>(g.pad)) - static_cast<int>(ky);
    const int x = static_cast<int>(col + static_cast<unsigned>(g.pad)) - static_cast<int>(kx);
    if (y < 0 || x < 0) return 0;
    const unsigned oy = g.step.quotient(static_cast<unsigned>(y)), ox = g.step.quotient(static_cast<unsigned>(x));
    if (oy * g.step.divisor != static_cast<unsigned>(y) || ox * g.step.divisor != static_cast<unsigned>(x)) return 0;
    if (oy >= static_cast<unsigned>(g.out_height) || ox >= static_cast<unsigned>(g.out_width)) return 0;
    return dy.get((static_cast<std::int64_t>(image) * g.c_out + group * g.group_out + o) * g.out_pixels() +
                  oy * g.row.divisor + ox);
  }
  __device__ void put(unsigned group, unsigned m, unsigned n, unsigned, float v) const {
    const unsigned image = g.image_pixels.quotient(n);
    dx.put((static_cast<std::int64_t>(image) * g.c_in + group * g.group_in + m) * g.in_pixels() +
               (n - image * g.image_pixels.divisor),
           v);
  }
};

template <class T>
struct BackwardWeight {  // k = (image, pixel)
  Geometry g;
  Source<T> dy, x;
  float* slabs;  // [slab, c_out, patch]

  __device__ float a(unsigned group, unsigned m, unsigned k) const {
    const unsigned image = g.pixels.quotient(k);
    return dy.get((static_cast<std::int64_t>(image) * g.c_out + group * g.group_out + m) * g.out_pixels() +
                  (k - image * g.pixels.divisor));
  }
  __device__ float b(unsigned group, unsigned k, unsigned n) const {
    const unsigned image = g.pixels.quotient(k);
    return patch_element(g, x, group, image, k - image * g.pixels.divisor, n);
  }
  __device__ void put(unsigned group, unsigned m, unsigned n, unsigned slab, float v) const {
    slabs[(static_cast<std::int64_t>(slab) * g.c_out + group * g.group_out + m) * g.patch() + n] = v;
  }
};

struct ProductShape {
  unsigned m, n, k, slab_k, slabs;  // slab i of a group takes k in [i slab_k, (i + 1) slab_k)
};

// C = A B by tiles of 64 x 64, 16 deep, in shared memory; thread (tx, ty) has results (4 ty.., 4 tx..).
template <class Product>
__global__ void __launch_bounds__(kThreads) product_kernel(ProductShape s, Product product) {
  __shared__ float a_tile[kTileK][kTileM], b_tile[kTileK][kTileN];
  const unsigned n0 = blockIdx.x * kTileN, m0 = blockIdx.y * kTileM;
  const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const unsigned group = blockIdx.z / s.slabs, slab = blockIdx.z - group * s.slabs, begin = slab * s.slab_k;
  const unsigned end = begin + s.slab_k < s.k ? begin + s.slab_k : s.k;
  float total[kEach][kEach] = {};
  for (unsigned k0 = begin; k0 < end; k0 += kTileK) {
#pragma unroll
    for (unsigned i = 0; i < kTileK * kTileM / kThreads; ++i) {
      const unsigned place = threadIdx.x + i * kThreads;
      const unsigned ka = place % kTileK, m = place / kTileK, kb = place / kTileN, n = place % kTileN;
      a_tile[ka][m] = m0 + m < s.m && k0 + ka < end ? product.a(group, m0 + m, k0 + ka) : 0.0F;
      b_tile[kb][n] = n0 + n < s.n && k0 + kb < end ? product.b(group, k0 + kb, n0 + n) : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) total[i][j] += a_tile[k][ty * kEach + i] * b_tile[k][tx + 16 * j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const unsigned m = m0 + ty * kEach + i, n = n0 + tx + 16 * j;
      if (m < s.m && n < s.n) product.put(group, m, n, slab, total[i][j]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    add_weight_slabs(std::int64_t n, int count, const float* slabs, Target<AnyType> dw) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  float total = 0;
  for (int slab = 0; slab < count; ++slab) total += slabs[slab * n + i];
  dw.put(i, dw.get(i) + total);
}

// A block a channel: sums dy over images and pixels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv_bias_kernel(std::int64_t batch, std::int64_t channels, std::int64_t pixels, Source<T> dy,
                     Target<AnyType> d_bias) {
  __shared__ float shared[kThreads / 32];
  const std::int64_t channel = blockIdx.x;
  float total = 0;
  for (std::int64_t image = 0; image < batch; ++image)
    for (std::int64_t pixel = threadIdx.x; pixel < pixels; pixel += kThreads)
      total += dy.get((image * channels + channel) * pixels + pixel);
  total = row_sum(total, shared);
  if (threadIdx.x == 0) d_bias.put(channel, d_bias.get(channel) + total);
}

template <class Product>
void run(const Stream& stream, std::int64_t groups, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t slabs,
         const Product& product) {
  REHEARSE_REQUIRE(std::max({m, n, k}) < (std::int64_t{1} << 31), "a convolution of 2^31 pixels or more");
  const std::int64_t slab_k = ceil_div(ceil_div(k, slabs), kTileK) * kTileK;
  const std::int64_t own_slabs = ceil_div(k, slab_k);
  REHEARSE_REQUIRE(groups * own_slabs < (std::int64_t{1} << 16), "a convolution of 2^16 groups or more");
  const ProductShape s{static_cast<unsigned>(m), static_cast<unsigned>(n), static_cast<unsigned>(k),
                       static_cast<unsigned>(slab_k), static_cast<unsigned>(own_slabs)};
  launch(product_kernel<Product>,
         dim3(grid_of(ceil_div(n, kTileN)).x, static_cast<unsigned>(ceil_div(m, kTileM)),
              static_cast<unsigned>(groups * own_slabs)),
         kThreads, 0, stream, s, product);
}

}  // namespace

void CudaDevice::conv_forward(const ConvShape& s, In x, In w, In bias, Out y) {
  const Geometry g(s);
  by_type({x, w, bias, y}, [&]<class T>() {
    run(stream_, s.groups, g.group_out, s.batch * g.out_pixels(), g.patch(), 1, Forward<T>{g, x, w, bias, y});
  });
}

void CudaDevice::conv_backward_input(const ConvShape& s, In dy, In w, Out dx) {
  const Geometry g(s);
  by_type({dy, w, dx}, [&]<class T>() {
    run(stream_, s.groups, g.group_in, s.batch * g.in_pixels(), g.group_out * s.kernel * s.kernel, 1,
        BackwardInput<T>{g, dy, w, dx});
  });
}

void CudaDevice::conv_backward_weight(const ConvShape& s, In dy, In x, Out dw, Out d_bias) {
  const Geometry g(s);
  const std::int64_t weights = s.c_out * g.patch(), k = s.batch * g.out_pixels();
  const std::int64_t tiles = s.groups * ceil_div(g.group_out, kTileM) * ceil_div(g.patch(), kTileN);
  // Some 500 blocks, of at least 256 pixels, as far as the workspace holds their sums.
  const std::int64_t room = static_cast<std::int64_t>(workspace_bytes_ / sizeof(float)) / weights;
  REHEARSE_REQUIRE(room > 0, "weights of a convolution do not fit the workspace");
  std::int64_t slabs = std::min(std::clamp<std::int64_t>(512 / tiles, 1, ceil_div(k, 256)), room);
  const std::int64_t slab_k = ceil_div(ceil_div(k, slabs), kTileK) * kTileK;
  slabs = ceil_div(k, slab_k);
  auto* sums = workspace<float>(slabs * weights);
  by_type({dy, x}, [&]<class T>() {
    run(stream_, s.groups, g.group_out, g.patch(), k, slabs, BackwardWeight<T>{g, dy, x, sums});
    if (d_bias)
      launch(conv_bias_kernel<T>, grid_of(s.c_out), kThreads, 0, stream_, s.batch, s.c_out, g.out_pixels(),
             Source<T>(dy), Target<AnyType>(d_bias));
  });
  launch(add_weight_slabs, grid_of(ceil_div(weights, kThreads)), kThreads, 0, stream_, weights, static_cast<int>(slabs),
         static_cast<const float*>(sums), Target<AnyType>(dw));
}

}  // namespace rehearse::kernels::cuda
