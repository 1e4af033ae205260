// Kernels that touch each element once: sums, copies, activations, and the bias gradient.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {
namespace {

// Elements (4 MiB) from which what is written does not stay in a core's cache: writing past it saves reading the lines
// first.
constexpr std::int64_t kPastCache = 1 << 20;

// gelu(x) = x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel 2016, eq.
// 2). The sigmoid form keeps full relative precision where tanh is near -1.
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f, kCubic = 0.044715f;

// F is float or Vec.
template <class F>
inline F sigmoid(F x) {
  return 1.0f / (1.0f + exp(-x));
}
template <class F>
inline F gelu(F x) {
  return x * sigmoid(kTwoRootTwoOverPi * (x + kCubic * x * x * x));
}
template <class F>
inline F gelu_slope(F x) {
  const F s = sigmoid(kTwoRootTwoOverPi * (x + kCubic * x * x * x));
  return s + x * s * (1.0f - s) * kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
}

// y = f(gate) up; where up is not an operand of its own, a row of gate_up has both.
template <class Function>
void gated_forward(ThreadPool& pool, std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up_alone,
                   float* y, const Function& f) {
  const std::int64_t step = up_alone == nullptr ? 2 * cols : cols;
  const float* ups = up_alone == nullptr ? gate_up + cols : up_alone;
  pool.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float *gate = gate_up + row * step, *up = ups + row * step;
      float* out = y + row * cols;
      each(0, cols, [=](std::int64_t i, auto tag) { put(out + i, f(get(gate + i, tag)) * get(up + i, tag)); });
    }
  });
}

// `f` gives f(gate) and its slope.
template <class Function>
void gated_backward(ThreadPool& pool, std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                    const float* up_alone, float* d_gate_up, const Function& f) {
  const std::int64_t step = up_alone == nullptr ? 2 * cols : cols;
  const float* ups = up_alone == nullptr ? gate_up + cols : up_alone;
  pool.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float *gate = gate_up + row * step, *up = ups + row * step, *d = dy + row * cols;
      float *d_gate = d_gate_up + row * 2 * cols, *d_up = d_gate + cols;
      each(0, cols, [=](std::int64_t i, auto tag) {
        const auto of_gate = f(get(gate + i, tag));
        const auto of_y = get(d + i, tag);
        put(d_gate + i, of_y * get(up + i, tag) * of_gate.second);
        put(d_up + i, of_y * of_gate.first);
      });
    }
  });
}

}  // namespace

void CpuKernels::activation_forward(Unary fn, std::int64_t n, const float* x, float* y) {
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    if (fn == Unary::gelu) {
      each(begin, end, [=](std::int64_t i, auto tag) { put(y + i, gelu(get(x + i, tag))); });
    } else if (fn == Unary::tanh) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = std::tanh(x[i]);
    } else if (fn == Unary::sigmoid) {
      each(begin, end, [=](std::int64_t i, auto tag) { put(y + i, sigmoid(get(x + i, tag))); });
    } else if (fn == Unary::silu) {
      each(begin, end, [=](std::int64_t i, auto tag) {
        const auto v = get(x + i, tag);
        put(y + i, v * sigmoid(v));
      });
    } else if (fn == Unary::squared_relu) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] < 0 ? 0 : x[i] * x[i];
    } else {
      for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] < 0 ? 0 : x[i];  // NaN stays
    }
  });
}

void CpuKernels::activation_backward(Unary fn, std::int64_t n, const float* dy, const float* x, float* dx) {
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    if (fn == Unary::gelu) {
      each(begin, end, [=](std::int64_t i, auto tag) { put(dx + i, get(dy + i, tag) * gelu_slope(get(x + i, tag))); });
    } else if (fn == Unary::tanh) {
      for (std::int64_t i = begin; i < end; ++i) dx[i] = dy[i] * (1 - x[i] * x[i]);
    } else if (fn == Unary::sigmoid) {
      for (std::int64_t i = begin; i < end; ++i) dx[i] = dy[i] * (x[i] * (1 - x[i]));
    } else if (fn == Unary::silu) {
      each(begin, end, [=](std::int64_t i, auto tag) {
        const auto v = get(x + i, tag), s = sigmoid(v);
        put(dx + i, get(dy + i, tag) * (s + v * s * (1.0f - s)));
      });
    } else if (fn == Unary::squared_relu) {
      for (std::int64_t i = begin; i < end; ++i) dx[i] = x[i] > 0 ? 2 * x[i] * dy[i] : 0;
    } else {
      for (std::int64_t i = begin; i < end; ++i) dx[i] = x[i] > 0 ? dy[i] : 0;
    }
  });
}

void CpuKernels::swiglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up_alone,
                                float* y) {
  gated_forward(pool_, rows, cols, gate_up, up_alone, y, [](auto g) { return g * sigmoid(g); });
}

void CpuKernels::swiglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                                 const float* up_alone, float* d_gate_up) {
  gated_backward(pool_, rows, cols, dy, gate_up, up_alone, d_gate_up, [](auto g) {
    const auto s = sigmoid(g);
    return std::pair{g * s, s + g * s * (1.0f - s)};
  });
}

void CpuKernels::weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up,
                                         const float* weights, float* y) {
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float *gate = gate_up + row * 2 * cols, *up = gate + cols;
      const float w = weights[row];
      float* out = y + row * cols;
      each(0, cols, [=](std::int64_t i, auto tag) {
        const auto g = get(gate + i, tag);
        put(out + i, g * sigmoid(g) * get(up + i, tag) * w);
      });
    }
  });
}

void CpuKernels::weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                                          const float* weights, float* d_gate_up, float* d_weights) {
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float *gate = gate_up + row * 2 * cols, *up = gate + cols, *d = dy + row * cols;
      float *d_gate = d_gate_up + row * 2 * cols, *d_up = d_gate + cols;
      const float w = weights[row];
      d_weights[row] = sum_terms(cols, [=](std::int64_t i, auto tag) {
        const auto g = get(gate + i, tag);
        return get(d + i, tag) * (g * sigmoid(g) * get(up + i, tag));
      });
      each(0, cols, [=](std::int64_t i, auto tag) {
        const auto g = get(gate + i, tag), s = sigmoid(g), of_y = get(d + i, tag) * w;
        put(d_gate + i, of_y * get(up + i, tag) * (s + g * s * (1.0f - s)));
        put(d_up + i, of_y * (g * s));
      });
    }
  });
}

void CpuKernels::geglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up_alone,
                               float* y) {
  gated_forward(pool_, rows, cols, gate_up, up_alone, y, [](auto g) { return gelu(g); });
}

void CpuKernels::geglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                                const float* up_alone, float* d_gate_up) {
  gated_backward(pool_, rows, cols, dy, gate_up, up_alone, d_gate_up, [](auto g) {
    return std::pair{gelu(g), gelu_slope(g)};
  });
}

void CpuKernels::add(std::int64_t n, const float* a, const float* b, float* y) {
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = a[i] + b[i];
  });
}

void CpuKernels::accumulate(std::int64_t n, const float* x, float* y) {
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += x[i];
  });
}

void CpuKernels::copy(std::int64_t n, const float* x, float* y) {
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(y + begin, x + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
}

void CpuKernels::fill(std::int64_t n, float value, float* y) {
  const bool past_cache = n >= kPastCache;
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t i = begin;
    if (past_cache) {
      while (i < end && reinterpret_cast<std::uintptr_t>(y + i) % sizeof(Vec) != 0) y[i++] = value;
      for (; i + kLanes <= end; i += kLanes) _mm256_stream_ps(y + i, splat(value));
      _mm_sfence();
    }
    std::fill(y + i, y + end, value);
  });
}

void CpuKernels::scale(std::int64_t n, float value, const float* x, float* y) {
  pool_.ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = value * x[i];
  });
}

void CpuKernels::scale_rows(std::int64_t rows, std::int64_t cols, const float* factors, float* x) {
  pool_.ranges(rows, std::max<std::int64_t>(1, kGrain / cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = row * cols; i < (row + 1) * cols; ++i) x[i] *= factors[row];
  });
}

void CpuKernels::bias_grad(std::int64_t rows, std::int64_t cols, const float* dy, float* d_bias) {
  pool_.ranges(cols, 64, [&](std::int64_t begin, std::int64_t end, int) {
    add_column_sums(rows, begin, end, d_bias,
                    [&](std::int64_t row, std::int64_t col, auto tag) { return get(dy + row * cols + col, tag); });
  });
}

}  // namespace rehearse::kernels::cpu
