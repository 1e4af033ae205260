// Kernels that touch each element once, by position: sums, copies, casts, activations and their gradients.
// Bytes they must move: each input element read once, each output element written once (accumulate and scale in place
// read what they write).
#include <cmath>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/require.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kThreads = 256, kPerThread = 2;  // chunks a thread has on their way at once

template <class T, int kInputs>
struct Inputs {
  Source<T> x[kInputs == 0 ? 1 : kInputs];
};

// y[i] = op(x0[i], x1[i], ...). A thread's chunks are a block apart, so that a warp's accesses lie side by side.
template <class T, int kInputs, class Op>
__global__ void __launch_bounds__(kThreads)
    elementwise(std::int64_t n, bool aligned, Inputs<T, kInputs> in, Target<T> y, Op op) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x) * kChunk;
  const auto step = static_cast<std::int64_t>(kThreads) * kChunk;
  const auto work = [&]<class Access>(Access, int count) {
    typename Access::template Loaded<T> loaded[kPerThread][kInputs == 0 ? 1 : kInputs];
#pragma unroll
    for (int u = 0; u < kPerThread; ++u) {
      if (u >= count) break;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) loaded[u][k] = Access::load(in.x[k], clip(first + u * step, 0, n));
    }
#pragma unroll
    for (int u = 0; u < kPerThread; ++u) {
      if (u >= count) break;
      float v[kInputs == 0 ? 1 : kInputs][kChunk], out[kChunk];
#pragma unroll
      for (int k = 0; k < kInputs; ++k) Access::values(in.x[k], loaded[u][k], v[k]);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if constexpr (kInputs == 0) out[i] = op();
        if constexpr (kInputs == 1) out[i] = op(v[0][i]);
        if constexpr (kInputs == 2) out[i] = op(v[0][i], v[1][i]);
      }
      Access::store(y, clip(first + u * step, 0, n), out);
    }
  };
  if (aligned && first + (kPerThread - 1) * step + kChunk <= n) {
    work(Whole{}, kPerThread);
  } else {
    int count = 0;
    while (count < kPerThread && first + count * step < n) ++count;
    work(Piecewise{}, count);
  }
}

template <int kInputs, class Op, class... Ins>
void run(const Stream& stream, std::int64_t n, Out y, Op op, Ins... ins) {
  by_type({y, ins...}, [&]<class T>() {
    Inputs<T, kInputs> in{{Source<T>(ins)...}};
    bool aligned = Target<T>(y).aligned;
    for (int k = 0; k < kInputs; ++k) aligned = aligned && in.x[k].aligned;
    launch(elementwise<T, kInputs, Op>, grid_of(ceil_div(n, kThreads * kPerThread * kChunk)), kThreads, 0, stream, n,
           aligned, in, Target<T>(y), op);
  });
}

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};
struct Times {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};
struct Gelu {
  __device__ float operator()(float x) const { return gelu(x); }
};
struct GeluBackward {
  __device__ float operator()(float dy, float x) const { return dy * gelu_slope(x); }
};
struct Relu {
  __device__ float operator()(float x) const { return x < 0 ? 0.0F : x; }  // not a number stays
};
struct ReluBackward {
  __device__ float operator()(float dy, float x) const { return x > 0 ? dy : 0.0F; }
};
struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct TanhBackward {
  __device__ float operator()(float dy, float y) const { return dy * (1 - y * y); }
};
struct Sigmoid {
  __device__ float operator()(float x) const { return sigmoid(x); }
};
struct SigmoidBackward {
  __device__ float operator()(float dy, float y) const { return dy * (y * (1 - y)); }
};
struct Silu {
  __device__ float operator()(float x) const { return x * sigmoid(x); }
};
struct SiluBackward {
  __device__ float operator()(float dy, float x) const {
    const float s = sigmoid(x);
    return dy * (s + x * s * (1 - s));
  }
};
struct SquaredRelu {
  __device__ float operator()(float x) const { return x < 0 ? 0.0F : x * x; }
};
struct SquaredReluBackward {
  __device__ float operator()(float dy, float x) const { return x > 0 ? 2.0F * x * dy : 0.0F; }
};

}  // namespace

void CudaDevice::activation_forward(Unary fn, std::int64_t n, In x, Out y) {
  if (fn == Unary::gelu) {
    run<1>(stream_, n, y, Gelu{}, x);
  } else if (fn == Unary::tanh) {
    run<1>(stream_, n, y, Tanh{}, x);
  } else if (fn == Unary::sigmoid) {
    run<1>(stream_, n, y, Sigmoid{}, x);
  } else if (fn == Unary::silu) {
    run<1>(stream_, n, y, Silu{}, x);
  } else if (fn == Unary::squared_relu) {
    run<1>(stream_, n, y, SquaredRelu{}, x);
  } else {
    run<1>(stream_, n, y, Relu{}, x);
  }
}

void CudaDevice::activation_backward(Unary fn, std::int64_t n, In dy, In x, Out dx) {
  if (fn == Unary::gelu) {
    run<2>(stream_, n, dx, GeluBackward{}, dy, x);
  } else if (fn == Unary::tanh) {
    run<2>(stream_, n, dx, TanhBackward{}, dy, x);
  } else if (fn == Unary::sigmoid) {
    run<2>(stream_, n, dx, SigmoidBackward{}, dy, x);
  } else if (fn == Unary::silu) {
    run<2>(stream_, n, dx, SiluBackward{}, dy, x);
  } else if (fn == Unary::squared_relu) {
    run<2>(stream_, n, dx, SquaredReluBackward{}, dy, x);
  } else {
    run<2>(stream_, n, dx, ReluBackward{}, dy, x);
  }
}

void CudaDevice::add(std::int64_t n, In a, In b, Out y) {
  run<2>(stream_, n, y, Sum{}, a, b);
}

void CudaDevice::accumulate(std::int64_t n, In x, Out y) {
  run<2>(stream_, n, y, Sum{}, y, x);
}

void CudaDevice::copy(std::int64_t n, In x, Out y) {
  if (x.type == y.type) {
    cuda::copy(y.data, x.data, static_cast<std::size_t>(n * size_of(x.type)), stream_);
  } else {
    run<1>(stream_, n, y, Same{}, x);
  }
}

namespace {

constexpr int kCopyThreads = 128;

// A thread an element, a row of blocks a piece.
template <class T>
__global__ void __launch_bounds__(kCopyThreads)
    strided_copy_kernel(const __grid_constant__ StridedCopy s, const T* x, T* y) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kCopyThreads + threadIdx.x;
  if (c >= s.cols) return;
  const std::int64_t i = blockIdx.x / s.inner, j = blockIdx.x % s.inner;
  y[s.to.first + i * s.to.outer + j * s.to.inner + c] = x[s.from.first + i * s.from.outer + j * s.from.inner + c];
}

}  // namespace

void CudaDevice::copy_strided(const StridedCopy& s, In x, Out y) {
  REHEARSE_REQUIRE(x.type == y.type, "a strided copy that changes the type");
  const dim3 grid(grid_of(s.outer * s.inner).x, static_cast<unsigned>(ceil_div(s.cols, kCopyThreads)));
  const auto run_as = [&]<class T>(T) {
    launch(strided_copy_kernel<T>, grid, dim3(kCopyThreads), 0, stream_, s, static_cast<const T*>(x.data),
           static_cast<T*>(y.data));
  };
  if (size_of(x.type) == 2)
    run_as(std::uint16_t{});
  else
    run_as(std::uint32_t{});
}

void CudaDevice::fill(std::int64_t n, float value, Out y) {
  // Zeros, which most fills are: the driver writes them at the memory's rate, a thread's 32 bytes of fp32 at half of it
  // (H100: 1.6 of 3.2 TB/s).
  if (value == 0 && !std::signbit(value))
    return set_bytes(y.data, 0, static_cast<std::size_t>(n * size_of(y.type)), stream_);
  // Masks, codes and places are of the others.
  REHEARSE_REQUIRE(size_of(y.type) > 1 && y.type != DType::i32,
                   "a fill of a type without fractions with another number than 0");
  run<0>(stream_, n, y, Constant{value});
}

void CudaDevice::scale(std::int64_t n, float value, In x, Out y) {
  run<1>(stream_, n, y, Times{value}, x);
}

}  // namespace rehearse::kernels::cuda
