// The MLP branch of a block, between its norm and its residual: the up-projection (column-parallel; two halves where
// the activation is gated), the activation, and the down-projection (row-parallel).
#pragma once

#include <string>

#include "sim/lower/model/feed_forward.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

class MlpBranch : public FeedForward {
 public:
  // `prefix`: the block's name; `name` that of the branch in it, of width `ffn_hidden`.
  MlpBranch(const UnitScope& scope, const std::string& prefix, const std::string& name, std::int64_t ffn_hidden);

  void declare_parameters() override;
  void declare_buffers(BufferId input) override;
  void input_made_again() override { tp_.made_again(input_); }
  void forward_to_activation(bool again) override;
  BufferId forward_from_activation(bool again = false) override;
  bool keeps_output() const override { return c_.adapts(&model::Adapters::fc2); }
  BufferId backward(BufferId out_gradient, bool input_gradient) override;
  // The same in two parts: of the second product, -> the activation's gradient (-1: nothing below is trained); the
  // rest.
  BufferId backward_to_activation(BufferId out_gradient, bool input_gradient);
  BufferId backward_from_activation(BufferId d_activation, bool input_gradient);
  bool trains() const override { return tp_.trains(up_w_) || tp_.trains(down_w_); }
  ParamId bias() const override { return down_b_; }

 private:
  bool gated() const { return m_.gated(); }
  std::int64_t up_width() const { return (gated() ? 2 : 1) * ffn_hidden_ / c_.tensor; }
  std::int64_t width() const { return ffn_hidden_ / c_.tensor; }
  program::Activation activation(bool backward) const;
  // Of recomputation op by op: whether the first product is kept, as the fifth of a layer's, and not the second. The
  // sixth it is behind five of attention (latent_attention.h).
  bool keeps_first() const { return !m_.latent_attention() || m_.q_lora_rank == 0; }
  // Whether products do GELU.
  bool fuses_gelu() const;

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::int64_t ffn_hidden_;
  std::string prefix_, name_;
  TensorParallel tp_;
  ParamId up_w_ = -1, up_b_ = -1, down_w_ = -1, down_b_ = -1;
  // Gate and up-projection are one product. Where one is kept and the other is not, they are two: up_ is the gate then,
  // and value_ the up-projection.
  bool parted() const { return value_ >= 0; }
  std::vector<Operand> up_operands() const;

  BufferId input_ = -1, up_ = -1, value_ = -1, activation_ = -1;
  BufferId silu_ = -1;  // of a gate, which backward reads where the product with it is a kernel of its own
};

}  // namespace rehearse::lower
