// Layer normalisation (Ba et al. 2016) and root-mean-square normalisation (Zhang and Sennrich 2019), row by row.
// With x^ = (x - mean) / deviation (rms: mean = 0) and g = dy gamma, the gradient is
// dx = (g - mean(g) - x^ mean(g x^)) / deviation, without the mean(g) for rms.
//
// A row is held in registers by one or more warps, kHeld chunks of eight a thread, so that it is read once; rows too
// long for that (kHeld = 0) are read again, from the second-level cache. Bytes that must be moved: forward x and y;
// backward dy, x, dx and the residual. Gradients of the weights: norm_weight.cu.
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/norm_stats.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kMaxWarps = 16;  // of a row
constexpr int kMaxRows = 8;

struct NormShape {
  bool rms = false, whole = false;
  std::int64_t rows = 0, cols = 0;
  double eps = 0;
};

// Threads of a block, and blocks that shall fit a multiprocessor, which bounds the registers: 64 for rows of up to two
// chunks a thread (two fp32 ones need more), 128 beyond.
template <class T, int kHeld>
struct Bounds {
  static constexpr int kThreads = kHeld == 1 ? 256 : 512;
  static constexpr int kBlocks = kHeld == 1 ? 4 : kHeld == 2 && sizeof(T) == 2 ? 2 : 1;
};

// body(k, chunk of columns) for the thread's chunks of a row; k is which of the held ones.
template <int kHeld, class Body>
__device__ void over_chunks(std::int64_t cols, Body&& body) {
  if constexpr (kHeld == 0) {
    for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * kChunk; at < cols; at += blockDim.x * kChunk)
      body(0, clip(at, 0, cols));
  } else {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const std::int64_t at = static_cast<std::int64_t>(threadIdx.x + k * blockDim.x) * kChunk;
      if (at < cols) body(k, clip(at, 0, cols));
    }
  }
}

// A row of an operand, as far as the thread holds it.
template <class Access, class T, int kHeld>
struct Row {
  const Source<T>& source;
  std::int64_t row, cols;
  typename Access::template Loaded<T> words[kHeld == 0 ? 1 : kHeld];

  __device__ Row(const Source<T>& s, std::int64_t r, std::int64_t c) : source(s), row(r), cols(c) {
    if constexpr (kHeld > 0)
      over_chunks<kHeld>(cols, [&](int k, const Chunk& at) { words[k] = Access::load(source, in_row(at, row, cols)); });
  }
  __device__ void values(int k, const Chunk& at, float (&v)[kChunk]) const {
    if constexpr (kHeld > 0) {
      Access::values(source, words[k], v);
    } else {
      Access::values(source, Access::load(source, in_row(at, row, cols)), v);
    }
  }
};

struct SharedSums {
  float first[kMaxWarps * kMaxRows], second[kMaxWarps * kMaxRows];
};

template <class Access, class T, int kHeld>
__device__ void forward_row(const NormShape& s, std::int64_t row, bool active, SharedSums& shared, const Source<T>& x,
                            const Source<AnyType>& gamma, const Source<AnyType>& beta, const Target<T>& y,
                            float* stats) {
  const std::int64_t cols = active ? s.cols : 0;
  const Row<Access, T, kHeld> in(x, row, cols);
  float v[kChunk], mean = 0;
  if (!s.rms) {
    float sum = 0;
    over_chunks<kHeld>(cols, [&](int k, const Chunk& c) {
      in.values(k, c, v);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum += v[i];
    });
    mean = row_sum(sum, shared.first) / static_cast<float>(s.cols);
  }
  float squares = 0;
  over_chunks<kHeld>(cols, [&](int k, const Chunk& c) {
    in.values(k, c, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float d = i >= c.first && i < c.last ? v[i] - mean : 0.0F;
      squares += d * d;
    }
  });
  squares = row_sum(squares, shared.second);
  const float inverse = 1.0F / sqrtf(squares / static_cast<float>(s.cols) + static_cast<float>(s.eps));
  if (active && threadIdx.x == 0) {
    if (s.rms) {
      stats[row] = inverse;
    } else {
      *reinterpret_cast<float2*>(stats + 2 * row) = {mean, inverse};
    }
  }
  over_chunks<kHeld>(cols, [&](int k, const Chunk& c) {
    float g[kChunk], b[kChunk] = {};
    Access::values(gamma, Access::load(gamma, c), g);
    if (beta.there()) Access::values(beta, Access::load(beta, c), b);
    in.values(k, c, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = (v[i] - mean) * inverse * g[i] + b[i];
    Access::store(y, in_row(c, row, s.cols), v);
  });
}

template <class T, int kHeld>
__global__ void __launch_bounds__(Bounds<T, kHeld>::kThreads, Bounds<T, kHeld>::kBlocks)
    norm_forward_kernel(NormShape s, Source<T> x, Source<AnyType> gamma, Source<AnyType> beta, Target<T> y,
                        float* stats) {
  __shared__ SharedSums shared;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if constexpr (kHeld > 0) {
    forward_row<Whole, T, kHeld>(s, row, row < s.rows, shared, x, gamma, beta, y, stats);
  } else if (s.whole) {
    forward_row<Whole, T, 0>(s, row, row < s.rows, shared, x, gamma, beta, y, stats);
  } else {
    forward_row<Piecewise, T, 0>(s, row, row < s.rows, shared, x, gamma, beta, y, stats);
  }
}

template <class Access, class T, int kHeld>
__device__ void backward_row(const NormShape& s, std::int64_t row, bool active, SharedSums& shared, const Source<T>& dy,
                             const Source<T>& x, const float* stats, const Source<AnyType>& gamma,
                             const Source<T>& residual, const Target<T>& dx) {
  const std::int64_t cols = active ? s.cols : 0;
  const Row<Access, T, kHeld> in(x, row, cols), d(dy, row, cols);
  const RowStats at = active ? read_stats(s.rms, stats, row) : RowStats{0, 0};
  float v[kChunk], g[kChunk], w[kChunk], sum_g = 0, sum_gx = 0;
  over_chunks<kHeld>(cols, [&](int k, const Chunk& c) {
    Access::values(gamma, Access::load(gamma, c), w);
    in.values(k, c, v);
    d.values(k, c, g);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {  // g is zero outside the row
      sum_g += g[i] * w[i];
      sum_gx += g[i] * w[i] * (v[i] - at.mean);
    }
  });
  const float count = static_cast<float>(s.cols);
  const float mean_g = s.rms ? 0.0F : row_sum(sum_g, shared.first) / count;
  const float slope = row_sum(sum_gx, shared.second) * at.inverse * at.inverse / count;
  over_chunks<kHeld>(cols, [&](int k, const Chunk& c) {
    float skip[kChunk] = {};
    if (residual.there()) Access::values(residual, Access::load(residual, in_row(c, row, s.cols)), skip);
    Access::values(gamma, Access::load(gamma, c), w);
    in.values(k, c, v);
    d.values(k, c, g);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = skip[i] + (g[i] * w[i] - mean_g - (v[i] - at.mean) * slope) * at.inverse;
    Access::store(dx, in_row(c, row, s.cols), v);
  });
}

template <class T, int kHeld>
__global__ void __launch_bounds__(Bounds<T, kHeld>::kThreads, Bounds<T, kHeld>::kBlocks)
    norm_backward_input_kernel(NormShape s, Source<T> dy, Source<T> x, const float* stats, Source<AnyType> gamma,
                               Source<T> residual, Target<T> dx) {
  __shared__ SharedSums shared;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if constexpr (kHeld > 0) {
    backward_row<Whole, T, kHeld>(s, row, row < s.rows, shared, dy, x, stats, gamma, residual, dx);
  } else if (s.whole) {
    backward_row<Whole, T, 0>(s, row, row < s.rows, shared, dy, x, stats, gamma, residual, dx);
  } else {
    backward_row<Piecewise, T, 0>(s, row, row < s.rows, shared, dy, x, stats, gamma, residual, dx);
  }
}

// Calls f.operator()<T, kHeld>(grid, block) with as few warps a row as hold it in one chunk a thread up to 2048
// columns, in two up to 8192, in four up to 16384, and enough rows that a block has four warps. Longer rows, rows of
// several types, and those that cannot be taken in whole chunks are not held.
template <class F>
void by_row_length(const NormShape& s, std::initializer_list<In> operands, F&& f) {
  const std::int64_t chunks = ceil_div(s.cols, kChunk);
  const auto with = [&]<class T, int kHeld>() {
    const auto warps =
        static_cast<unsigned>(std::min<std::int64_t>(ceil_div(chunks, 32 * std::max(kHeld, 1)), kMaxWarps));
    const unsigned down = warps >= 4 ? 1 : 4 / warps;
    f.template operator()<T, kHeld>(grid_of(ceil_div(s.rows, down)), dim3(32 * warps, down));
  };
  by_type(operands, [&]<class T>() {
    if constexpr (!std::is_same_v<T, AnyType>) {
      if (s.whole && chunks <= 32 * 8) return with.template operator()<T, 1>();
      if (s.whole && chunks <= 32 * kMaxWarps * 2) return with.template operator()<T, 2>();
      if (s.whole && chunks <= 32 * kMaxWarps * 4) return with.template operator()<T, 4>();
    }
    with.template operator()<AnyType, 0>();
  });
}

}  // namespace

void CudaDevice::norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta,
                              Out y, float* stats) {
  const NormShape s{rms, whole_rows(cols, {x, gamma, beta, y}), rows, cols, eps};
  by_row_length(s, {x, y}, [&]<class T, int kHeld>(dim3 grid, dim3 block) {
    launch(norm_forward_kernel<T, kHeld>, grid, block, 0, stream_, s, Source<T>(x), Source<AnyType>(gamma),
           Source<AnyType>(beta), Target<T>(y), stats);
  });
}

void CudaDevice::norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                     In gamma, In residual, Out dx) {
  const NormShape s{rms, whole_rows(cols, {dy, x, gamma, residual, dx}), rows, cols, 0};
  by_row_length(s, {dy, x, residual, dx}, [&]<class T, int kHeld>(dim3 grid, dim3 block) {
    launch(norm_backward_input_kernel<T, kHeld>, grid, block, 0, stream_, s, Source<T>(dy), Source<T>(x), stats,
           Source<AnyType>(gamma), Source<T>(residual), Target<T>(dx));
  });
}

}  // namespace rehearse::kernels::cuda
