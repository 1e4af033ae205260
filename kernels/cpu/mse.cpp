// Mean squared error as torch.nn.MSELoss: the sum of squares, and its gradient.
#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {

// Differences and squares are fp32's of a block's, sums over blocks double precision's. Blocks of fixed size, added in
// order: the same sum for any number of threads.
double CpuKernels::sum_square_differences(std::int64_t n, const float* a, const float* b) {
  constexpr std::int64_t kBlock = 4096;
  std::vector<double> sums(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
  pool_.ranges(n, kBlock, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end; block += kBlock)
      sums[static_cast<std::size_t>(block / kBlock)] = static_cast<double>(
          sum_terms(std::min(end - block, kBlock), [x = a + block, y = b + block](std::int64_t i, auto tag) {
            const auto difference = get(x + i, tag) - get(y + i, tag);
            return difference * difference;
          }));
  });
  double total = 0;
  for (const double one : sums) total += one;
  return total;
}

void CpuKernels::mse_backward(std::int64_t n, double scale, const float* x, const float* target, float* dx) {
  const auto factor = static_cast<float>(2 * scale);
  pool_.ranges(n, kGrain, [=](std::int64_t begin, std::int64_t end, int) {
    each(begin, end, [=](std::int64_t i, auto tag) { put(dx + i, (get(x + i, tag) - get(target + i, tag)) * factor); });
  });
}

}  // namespace rehearse::kernels::cpu
