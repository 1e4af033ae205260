#include "sim/cost/jitter.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <variant>

namespace rehearse::cost {

KernelClass kernel_class(const program::OpShape& shape) {
  if (std::holds_alternative<program::Gemm>(shape)) return KernelClass::product;
  return std::holds_alternative<program::Attention>(shape) ? KernelClass::attention : KernelClass::other;
}

bool Jitter::any() const {
  return std::any_of(kernels.begin(), kernels.end(), [](double s) { return s > 0; }) || transfers > 0 || waking > 0 ||
         rank_step > 0 || kernel_delays.any() || transfer_delays.any() || waking_delays.any() || dispatch_delays.any();
}

Delays nearest_delays(const std::vector<CompanyDelays>& all, int threads, int busy) {
  const auto far = [&](const CompanyDelays& c) {
    return std::pair(std::abs(c.threads - threads), std::abs(c.busy - busy));
  };
  const auto nearest =
      std::min_element(all.begin(), all.end(), [&](const auto& a, const auto& b) { return far(a) < far(b); });
  return nearest == all.end() ? Delays{} : nearest->delays;
}

}  // namespace rehearse::cost
