// Matrix products by Eigen, split over the device's threads along the longer side of the result.
// Eigen's path for small products is turned off (threshold 1), so that every size is summed in the order of the one
// kernel, which packs its operands: results do not depend on their alignment.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 1
#include "kernels/cpu/gemm.h"

#include <Eigen/Core>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using Input = Eigen::Map<const Matrix, 0, Stride>;
using Output = Eigen::Map<Matrix, 0, Stride>;

template <class A, class B>
void add_product(const A& a, const B& b, Output& c) {
  c.noalias() += a * b;
}

// Eigen copies one operand's whole side of a product, a few hundred deep, into memory of its own: rows and columns
// taken at a time, so that this stays below 8 MiB a thread (the output layer of GPT-2 has 50257 columns: 80 MB).
constexpr std::int64_t kPanel = 4096;

void add_panel(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, float* c, std::int64_t stride) {
  const Input stored_a(a.data, a.transposed ? k : m, a.transposed ? m : k, Stride(a.stride));
  const Input stored_b(b.data, b.transposed ? n : k, b.transposed ? k : n, Stride(b.stride));
  Output result(c, m, n, Stride(stride));
  if (a.transposed && b.transposed) {
    add_product(stored_a.transpose(), stored_b.transpose(), result);
  } else if (a.transposed) {
    add_product(stored_a.transpose(), stored_b, result);
  } else if (b.transposed) {
    add_product(stored_a, stored_b.transpose(), result);
  } else {
    add_product(stored_a, stored_b, result);
  }
}

}  // namespace

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, bool accumulate, float* c,
              std::int64_t stride) {
  if (!accumulate) {
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * stride, n, 0.0f);
  }
  if (k == 0) return;
  for (std::int64_t row = 0; row < m; row += kPanel) {
    for (std::int64_t col = 0; col < n; col += kPanel) {
      const Operand rows = {a.data + (a.transposed ? row : row * a.stride), a.stride, a.transposed};
      const Operand cols = {b.data + (b.transposed ? col * b.stride : col), b.stride, b.transposed};
      add_panel(std::min(kPanel, m - row), std::min(kPanel, n - col), k, rows, cols, c + row * stride + col, stride);
    }
  }
}

void CpuKernels::gemm(const Gemm& s, const float* a, const float* b, const float* bias, float* c) {
  const std::int64_t lda = s.transpose_a ? s.m : s.k, ldb = s.transpose_b ? s.k : s.n;
  const auto block = [&](std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    float* out = c + row * s.n + col;
    if (bias) {
      for (std::int64_t i = 0; i < rows; ++i) {
        float* y = out + i * s.n;
        if (s.accumulate) {
          for (std::int64_t j = 0; j < cols; ++j) y[j] += bias[col + j];
        } else {
          std::copy_n(bias + col, cols, y);
        }
      }
    }
    multiply(rows, cols, s.k, {a + (s.transpose_a ? row : row * lda), lda, s.transpose_a},
             {b + (s.transpose_b ? col * ldb : col), ldb, s.transpose_b}, s.accumulate || bias, out, s.n);
  };
  constexpr std::int64_t kBlockGrain = 48;  // a multiple of the register blocks of Eigen's kernel
  if (s.m >= s.n) {
    pool_.ranges(s.m, kBlockGrain,
                 [&](std::int64_t begin, std::int64_t end, int) { block(begin, end - begin, 0, s.n); });
  } else {
    pool_.ranges(s.n, kBlockGrain,
                 [&](std::int64_t begin, std::int64_t end, int) { block(0, s.m, begin, end - begin); });
  }
}

}  // namespace rehearse::kernels::cpu
