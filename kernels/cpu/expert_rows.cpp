// What experts do to rows beside their products: biases by group, rows times a number, gpt-oss's gated activation. See
// cpu_only_calls.h. Work is cut by rows, or for biases' gradients by columns, of which each adds its rows in order.
#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "sim/base/check.h"
#include "sim/base/swiglu_oai.h"

namespace rehearse::kernels::cpu {
namespace {

// Where each group's rows begin, and where the last ones end.
std::vector<std::int64_t> first_rows(const GroupedBiasShape& s, const float* loads) {
  std::vector<std::int64_t> first{0};
  for (std::int64_t g = 0; g < s.groups; ++g)
    first.push_back(first.back() + (loads ? static_cast<std::int64_t>(loads[g]) : s.rows / s.groups));
  REHEARSE_CHECK(first.back() <= s.rows, "{} rows of groups, but {} in all", first.back(), s.rows);
  return first;
}

// body(group, row) for rows [begin, end) that are a group's.
template <class Body>
void over_groups(const std::vector<std::int64_t>& first, std::int64_t begin, std::int64_t end, const Body& body) {
  std::size_t g = 0;
  for (std::int64_t row = begin; row < std::min(end, first.back()); ++row) {
    while (row >= first[g + 1]) ++g;
    body(static_cast<std::int64_t>(g), row);
  }
}

}  // namespace

void CpuKernels::grouped_bias(const GroupedBiasShape& s, const float* bias, const float* loads, const float* weights,
                              float* y) {
  const std::vector<std::int64_t> first = first_rows(s, loads);
  const float share = 1 / static_cast<float>(s.shares);
  pool_.ranges(s.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    over_groups(first, begin, end, [&](std::int64_t g, std::int64_t row) {
      const float by = weights ? share * weights[row] : share;
      for (std::int64_t c = 0; c < s.n; ++c) y[row * s.n + c] += by * bias[g * s.n + c];
    });
  });
}

void CpuKernels::grouped_bias_backward(const GroupedBiasShape& s, const float* dy, const float* loads,
                                       const float* weights, float* d_bias) {
  const std::vector<std::int64_t> first = first_rows(s, loads);
  pool_.ranges(s.n, 16, [&](std::int64_t begin, std::int64_t end, int) {
    over_groups(first, 0, s.rows, [&](std::int64_t g, std::int64_t row) {
      const float by = weights ? weights[row] : 1;
      for (std::int64_t c = begin; c < end; ++c) d_bias[g * s.n + c] += by * dy[row * s.n + c];
    });
  });
}

void CpuKernels::grouped_bias_weights(const GroupedBiasShape& s, const float* dy, const float* bias, const float* loads,
                                      float* d_weights) {
  const std::vector<std::int64_t> first = first_rows(s, loads);
  pool_.ranges(s.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    over_groups(first, begin, end, [&](std::int64_t g, std::int64_t row) {
      double sum = 0;
      for (std::int64_t c = 0; c < s.n; ++c) sum += static_cast<double>(dy[row * s.n + c]) * bias[g * s.n + c];
      d_weights[row] += static_cast<float>(sum / static_cast<double>(s.shares));
    });
  });
}

void CpuKernels::row_scale(std::int64_t rows, std::int64_t cols, const float* x, const float* weights, float* y) {
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t c = row * cols; c < (row + 1) * cols; ++c) y[c] = weights[row] * x[c];
  });
}

void CpuKernels::weighted_activation_forward(Unary fn, std::int64_t rows, std::int64_t cols, const float* x,
                                             const float* weights, float* y) {
  activation_forward(fn, rows * cols, x, y);
  row_scale(rows, cols, y, weights, y);
}

void CpuKernels::weighted_activation_backward(Unary fn, std::int64_t rows, std::int64_t cols, const float* dy,
                                              const float* x, const float* weights, float* dx, float* d_weights) {
  activation_forward(fn, rows * cols, x, dx);  // dx is the place of f(x) first
  row_scale_backward(rows, cols, dy, dx, weights, dx, d_weights);
  activation_backward(fn, rows * cols, dx, x, dx);
}

void CpuKernels::row_scale_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                                    const float* weights, float* dx, float* d_weights) {
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (std::int64_t c = row * cols; c < (row + 1) * cols; ++c) {
        sum += static_cast<double>(dy[c]) * x[c];
        dx[c] = weights[row] * dy[c];
      }
      d_weights[row] = static_cast<float>(sum);
    }
  });
}

// gate_up [rows, 2, cols], or with `up` the gate alone [rows, cols].
void CpuKernels::swiglu_oai_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up,
                                    const float* weights, float* y) {
  const std::int64_t step = up ? cols : 2 * cols;
  const float* const ups = up ? up : gate_up + cols;
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float by = weights ? weights[row] : 1;
      for (std::int64_t c = 0; c < cols; ++c)
        y[row * cols + c] = by * swiglu_oai(gate_up[row * step + c], ups[row * step + c]).y;
    }
  });
}

void CpuKernels::swiglu_oai_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                                     const float* up, const float* weights, float* d_gate_up, float* d_weights) {
  const std::int64_t step = up ? cols : 2 * cols;
  const float* const ups = up ? up : gate_up + cols;
  pool_.ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float by = weights ? weights[row] : 1;
      double sum = 0;
      for (std::int64_t c = 0; c < cols; ++c) {
        const SwigluOai at = swiglu_oai(gate_up[row * step + c], ups[row * step + c]);
        const float d = dy[row * cols + c];
        sum += static_cast<double>(d) * at.y;
        d_gate_up[row * 2 * cols + c] = by * d * at.d_gate;
        d_gate_up[(row * 2 + 1) * cols + c] = by * d * at.d_value;
      }
      if (weights) d_weights[row] = static_cast<float>(sum);
    }
  });
}

void CpuDevice::grouped_bias(const GroupedBiasShape& s, In bias, const float* loads, const float* weights, Out y) {
  Widened w(*this);
  kernels_.grouped_bias(s, w.read(bias, s.groups * s.n), loads, weights, w.update(y, s.rows * s.n));
}
void CpuDevice::grouped_bias_backward(const GroupedBiasShape& s, In dy, const float* loads, const float* weights,
                                      Out d_bias) {
  Widened w(*this);
  kernels_.grouped_bias_backward(s, w.read(dy, s.rows * s.n), loads, weights, w.update(d_bias, s.groups * s.n));
}
void CpuDevice::grouped_bias_weights(const GroupedBiasShape& s, In dy, In bias, const float* loads, float* d_weights) {
  Widened w(*this);
  kernels_.grouped_bias_weights(s, w.read(dy, s.rows * s.n), w.read(bias, s.groups * s.n), loads, d_weights);
}
void CpuDevice::row_scale(std::int64_t rows, std::int64_t cols, In x, const float* weights, Out y) {
  Widened w(*this);
  kernels_.row_scale(rows, cols, w.read(x, rows * cols), weights, w.write(y, rows * cols));
}
void CpuDevice::weighted_activation_forward(Unary fn, std::int64_t rows, std::int64_t cols, In x, const float* weights,
                                            Out y) {
  Widened w(*this);
  kernels_.weighted_activation_forward(fn, rows, cols, w.read(x, rows * cols), weights, w.write(y, rows * cols));
}
void CpuDevice::weighted_activation_backward(Unary fn, std::int64_t rows, std::int64_t cols, In dy, In x,
                                             const float* weights, Out dx, float* d_weights) {
  Widened w(*this);
  kernels_.weighted_activation_backward(fn, rows, cols, w.read(dy, rows * cols), w.read(x, rows * cols), weights,
                                        w.write(dx, rows * cols), d_weights);
}
void CpuDevice::row_scale_backward(std::int64_t rows, std::int64_t cols, In dy, In x, const float* weights, Out dx,
                                   float* d_weights) {
  Widened w(*this);
  kernels_.row_scale_backward(rows, cols, w.read(dy, rows * cols), w.read(x, rows * cols), weights,
                              w.write(dx, rows * cols), d_weights);
}
void CpuDevice::swiglu_oai_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, const float* weights,
                                   Out y) {
  Widened w(*this);
  const float* gate = w.read(gate_up, rows * (up ? 1 : 2) * cols);
  kernels_.swiglu_oai_forward(rows, cols, gate, w.read(up, rows * cols), weights, w.write(y, rows * cols));
}
void CpuDevice::swiglu_oai_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up,
                                    const float* weights, Out d_gate_up, float* d_weights) {
  Widened w(*this);
  const float* gate = w.read(gate_up, rows * (up ? 1 : 2) * cols);
  kernels_.swiglu_oai_backward(rows, cols, w.read(dy, rows * cols), gate, w.read(up, rows * cols), weights,
                               w.write(d_gate_up, rows * 2 * cols), d_weights);
}

}  // namespace rehearse::kernels::cpu
