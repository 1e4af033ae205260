#include "calibrate/gpu/walked_kernels.h"

#include <algorithm>
#include <set>

#include "calibrate/gpu/kernels_to_time.h"
#include "calibrate/gpu/walk.h"
#include "calibrate/kernel_times.h"

namespace rehearse::calibrate::gpu {

void WalkedKernels::add(const Walk& walk) {
  products_.insert(products_.end(), walk.products.begin(), walk.products.end());
  std::set<std::string> met;
  for (const WalkedOp& w : walk.ops) {
    const std::string key = key_of(*w.role, *w.op);
    std::vector<double>& spans = spans_[key];
    spans.insert(spans.end(), w.seconds.begin(), w.seconds.end());
    met.insert(key);
  }
  for (const std::string& key : met) {
    const Summary times = summarize(spans_[key]);
    kernels_.erase(key);
    if (times.p50_s >= kLeastWalkedS) kernels_.emplace(key, times);
  }
}

std::string WalkedKernels::algorithm(const cost::ProductKey& key) const {
  const std::string form = cost::form_text(key);
  for (const result::ProductUse& p : products_)
    if (p.form == form && p.m == key.m && p.n == key.n && p.k == key.k) return p.algorithm;
  return "";
}

bool WalkedKernels::would_add(const program::Role& role) const {
  return std::any_of(role.bodies.begin(), role.bodies.end(), [&](const program::Body& body) {
    return std::any_of(body.ops.begin(), body.ops.end(), [&](const program::Op& op) {
      return is_kernel(op) && !std::holds_alternative<program::Input>(op.shape) && !spans_.contains(key_of(role, op));
    });
  });
}

const Summary* WalkedKernels::find(const Kernel& kernel) const {
  const auto found = kernels_.find(key_of(*kernel.role, *kernel.op));
  return found == kernels_.end() ? nullptr : &found->second;
}

double WalkedKernels::seconds(const Kernel& kernel) const {
  const Summary* times = find(kernel);
  return times == nullptr ? 0 : times->p50_s;
}

}  // namespace rehearse::calibrate::gpu
