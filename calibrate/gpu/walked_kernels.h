// What walks (walk.h) found out: by kernel, all spans of all steps. A kernel counts only where its median is at least
// kLeastWalkedS: events around it are then a few hundredths of it at most.
#pragma once

#include <map>
#include <string>

#include "calibrate/gpu/bench.h"
#include "calibrate/statistics.h"

namespace rehearse::calibrate::gpu {

class WalkedKernels {
 public:
  void add(const Walk& walk);
  // Whether no walk yet has met some kernel of the role.
  bool would_add(const program::Role& role) const;
  bool empty() const { return kernels_.empty(); }
  // Of its spans; null for a kernel that was not walked, or is too short.
  const Summary* find(const Kernel& kernel) const;
  double seconds(const Kernel& kernel) const;  // their median, or 0
  // By which a product of any length was performed; "" if none was, or the library did not say.
  std::string algorithm(const cost::ProductKey& key) const;

 private:
  std::map<std::string, std::vector<double>> spans_;
  std::vector<result::ProductUse> products_;
  std::map<std::string, Summary> kernels_;  // by key_of(): those long enough
};

}  // namespace rehearse::calibrate::gpu
