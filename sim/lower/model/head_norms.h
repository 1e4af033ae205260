// Norms of each head's queries and keys between their product and the rotation (model.qk_norm), in place in packed qkv.
// All queries of a layer have one weight and all keys another, which every rank of the tensor group holds: each has the
// part of their gradients that is of its heads. What queries and keys were is kept for backward beside what the core
// reads.
#pragma once

#include <string>

#include "sim/lower/model/eager_passes.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {

class HeadNorms {
 public:
  // `name`: the attention branch's.
  HeadNorms(const UnitScope& scope, std::string name)
      : s_(scope), c_(scope.context), m_(scope.context.model()), name_(std::move(name)) {}

  bool on() const { return m_.qk_norm; }
  // Without norms these do nothing.
  void declare_parameters();
  void declare_buffers();
  void forward(BufferId qkv);
  void backward(BufferId d_qkv);

 private:
  program::HeadNorm shape(program::NormPart part) const;
  void takes_chains(EagerKernels (*chain)(std::int64_t)) const;

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string name_;
  ParamId query_ = -1, key_ = -1;
  BufferId raw_ = -1, stats_ = -1;
};

}  // namespace rehearse::lower
