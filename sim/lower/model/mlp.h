// The MLP branch of a block, between its norm and its residual: the up-projection (column-parallel; two halves where
// the activation is gated), the activation, and the down-projection (row-parallel).
#pragma once

#include <string>

#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

class MlpBranch {
 public:
  // `prefix`: the block's name.
  MlpBranch(const UnitScope& scope, const std::string& prefix);

  void declare_parameters();
  // input: the norm's output [local_tokens, hidden].
  void declare_buffers(BufferId input);
  // Everything that backward reads: the up-projection and the activation. `again`: what the micro-batch kept is not
  // computed again.
  void forward_to_activation(bool again);
  // The rest; returns the output [local_tokens, hidden].
  BufferId forward_from_activation();
  // The gradient of that -> the input's gradient [local_tokens, hidden].
  BufferId backward(BufferId out_gradient);
  // Of the down-projection, which is added with the residual or in the product; -1: none.
  ParamId bias() const { return down_b_; }

 private:
  bool gated() const { return m_.activation == model::ActivationKind::swiglu; }
  std::int64_t up_width() const { return (gated() ? 2 : 1) * m_.ffn_hidden / c_.tensor; }
  std::int64_t width() const { return m_.ffn_hidden / c_.tensor; }
  program::Activation activation(bool backward) const;

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string prefix_, name_;
  TensorParallel tp_;
  ParamId up_w_ = -1, up_b_ = -1, down_w_ = -1, down_b_ = -1;
  // Gate and up-projection are one product. Where one is kept and the other is not, they are two: up_ is the gate then,
  // and value_ the up-projection.
  bool parted() const { return value_ >= 0; }
  std::vector<Operand> up_operands() const;

  BufferId input_ = -1, up_ = -1, value_ = -1, activation_ = -1;
};

}  // namespace rehearse::lower
