// Kernels over the rows of activations: swiglu, and learned positions. Bytes they must move: each operand once (the
// table of positions once).
#include "kernels/cuda/activations.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

// y = silu(gate) up, times the row's weight if there are weights. Row r of the gate is row r * step of its operand,
// that of up the last of the `step` rows from there: one operand [rows, 2, cols] with step 2, or two [rows, cols] with
// step 1.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    swiglu_forward_kernel(std::int64_t rows, std::int64_t cols, bool whole_rows, int step, Source<T> gates,
                          Source<T> ups, const float* weights, Target<T> y) {
  over_rows(rows, cols, whole_rows, [&]<class Access>(Access, std::int64_t row, const Chunk& c) {
    const auto gate_words = Access::load(gates, in_row(c, step * row, cols));
    const auto up_words = Access::load(ups, in_row(c, step * row + step - 1, cols));
    const float w = weights != nullptr ? weights[row] : 1.0F;
    float gate[kChunk], up[kChunk];
    Access::values(gates, gate_words, gate);
    Access::values(ups, up_words, up);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) up[i] *= gate[i] * sigmoid(gate[i]) * w;
    Access::store(y, in_row(c, row, cols), up);
  });
}

// kWeighted: d_weights of a row is the sum of its products of dy and silu(gate) up.
template <class T, bool kWeighted>
__global__ void __launch_bounds__(kRowThreads)
    swiglu_backward_kernel(std::int64_t rows, std::int64_t cols, bool whole_rows, int step, Source<T> dy,
                           Source<T> gates, Source<T> ups, const float* weights, Target<T> d_gate_up,
                           float* d_weights) {
  float of_weight = 0;
  over_rows(rows, cols, whole_rows, [&]<class Access>(Access, std::int64_t row, const Chunk& c) {
    const auto dy_words = Access::load(dy, in_row(c, row, cols));
    const auto gate_words = Access::load(gates, in_row(c, step * row, cols));
    const auto up_words = Access::load(ups, in_row(c, step * row + step - 1, cols));
    const float w = kWeighted ? weights[row] : 1.0F;
    float d[kChunk], gate[kChunk], up[kChunk];
    Access::values(dy, dy_words, d);
    Access::values(gates, gate_words, gate);
    Access::values(ups, up_words, up);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float g = gate[i], s = sigmoid(g);
      if (kWeighted && i >= c.first && i < c.last) of_weight += d[i] * (g * s * up[i]);
      gate[i] = d[i] * w * up[i] * (s + g * s * (1.0F - s));
      up[i] = d[i] * w * g * s;
    }
    Access::store(d_gate_up, in_row(c, 2 * row, cols), gate);
    Access::store(d_gate_up, in_row(c, 2 * row + 1, cols), up);
  });
  if constexpr (kWeighted) {
    __shared__ float shared[kRowThreads / 32];
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    of_weight = row_sum(of_weight, shared);
    if (threadIdx.x == 0 && row < rows) d_weights[row] = of_weight;
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    add_position_kernel(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position,
                        bool whole_rows, Source<T> x, Source<T> table, Target<T> y) {
  over_rows(rows, cols, whole_rows, [&]<class Access>(Access, std::int64_t row, const Chunk& c) {
    const std::int64_t position = first_position + row / micro_batch;
    const auto x_words = Access::load(x, in_row(c, row, cols));
    const auto table_words = Access::load(table, in_row(c, position, cols));
    float a[kChunk], b[kChunk];
    Access::values(x, x_words, a);
    Access::values(table, table_words, b);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) a[i] += b[i];
    Access::store(y, in_row(c, row, cols), a);
  });
}

// One row of threads a position: its micro_batch rows are summed in order, then added to the table's.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    position_grad_kernel(std::int64_t positions, std::int64_t cols, std::int64_t micro_batch,
                         std::int64_t first_position, bool whole_rows, Source<T> dy, Target<AnyType> d_table) {
  over_rows(positions, cols, whole_rows, [&]<class Access>(Access, std::int64_t p, const Chunk& c) {
    float total[kChunk] = {}, v[kChunk];
#pragma unroll 4
    for (std::int64_t b = 0; b < micro_batch; ++b) {
      Access::values(dy, Access::load(dy, in_row(c, p * micro_batch + b, cols)), v);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) total[i] += v[i];
    }
    const Chunk of_table = in_row(c, first_position + p, cols);
    Access::values(d_table, Access::load(d_table, of_table), v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] += total[i];
    Access::store(d_table, of_table, v);
  });
}

}  // namespace

void CudaDevice::swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) {
  const auto [grid, block] = row_grid(rows, cols);
  const In ups = up ? up : gate_up;
  by_type({gate_up, ups, y}, [&]<class T>() {
    launch(swiglu_forward_kernel<T>, grid, block, 0, stream_, rows, cols, whole_rows(cols, {gate_up, ups, y}),
           up ? 1 : 2, Source<T>(gate_up), Source<T>(ups), nullptr, Target<T>(y));
  });
}

void CudaDevice::swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) {
  const auto [grid, block] = row_grid(rows, cols);
  const In ups = up ? up : gate_up;
  by_type({dy, gate_up, ups, d_gate_up}, [&]<class T>() {
    launch(swiglu_backward_kernel<T, false>, grid, block, 0, stream_, rows, cols,
           whole_rows(cols, {dy, gate_up, ups, d_gate_up}), up ? 1 : 2, Source<T>(dy), Source<T>(gate_up),
           Source<T>(ups), nullptr, Target<T>(d_gate_up), nullptr);
  });
}

void CudaDevice::weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, const float* weights,
                                         Out y) {
  const auto [grid, block] = row_grid(rows, cols);
  by_type({gate_up, y}, [&]<class T>() {
    launch(swiglu_forward_kernel<T>, grid, block, 0, stream_, rows, cols, whole_rows(cols, {gate_up, y}), 2,
           Source<T>(gate_up), Source<T>(gate_up), weights, Target<T>(y));
  });
}

void CudaDevice::weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, const float* weights,
                                          Out d_gate_up, float* d_weights) {
  const auto [grid, block] = row_grid(rows, cols);
  by_type({dy, gate_up, d_gate_up}, [&]<class T>() {
    launch(swiglu_backward_kernel<T, true>, grid, block, 0, stream_, rows, cols,
           whole_rows(cols, {dy, gate_up, d_gate_up}), 2, Source<T>(dy), Source<T>(gate_up), Source<T>(gate_up),
           weights, Target<T>(d_gate_up), d_weights);
  });
}

void CudaDevice::add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                              std::int64_t first_position, In x, In table, Out y) {
  const auto [grid, block] = row_grid(rows, cols);
  by_type({x, table, y}, [&]<class T>() {
    launch(add_position_kernel<T>, grid, block, 0, stream_, rows, cols, micro_batch, first_position,
           whole_rows(cols, {x, table, y}), Source<T>(x), Source<T>(table), Target<T>(y));
  });
}

void CudaDevice::position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                               std::int64_t first_position, In dy, Out d_table) {
  const std::int64_t positions = rows / micro_batch;
  const auto [grid, block] = row_grid(positions, cols);
  by_type({dy}, [&]<class T>() {
    launch(position_grad_kernel<T>, grid, block, 0, stream_, positions, cols, micro_batch, first_position,
           whole_rows(cols, {dy, d_table}), Source<T>(dy), Target<AnyType>(d_table));
  });
}

}  // namespace rehearse::kernels::cuda
