// Matrix products by Eigen's blocked kernel, on one thread, of strided row-major matrices.
#pragma once

#include <cstdint>

namespace rehearse::kernels::cpu {

// A row-major matrix whose rows are `stride` apart; transposed: the matrix stored is the transpose.
struct Operand {
  const float* data;
  std::int64_t stride;
  bool transposed = false;
};

// c[m, n] (rows `stride` apart) = or += a[m, k] b[k, n].
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, bool accumulate, float* c,
              std::int64_t stride);

}  // namespace rehearse::kernels::cpu
