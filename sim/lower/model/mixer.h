// The branch of a Mamba-2 mixer (sim/base/state_space.h), between its norm and its residual: one product for the gate,
// the channels, B, C and the steps (column-parallel), the convolution, the scan in chunks and the gate, a norm of each
// group's channels, and a product back (row-parallel).
//
// Over the tensor group as in Megatron-Core's MambaMixer (megatron/core/ssm/mamba_mixer.py): a rank has whole groups of
// heads, with the filters, the numbers and the norms of these, so nothing is sent between the two products.
//
// Kept for backward, as mamba_ssm's MambaSplitConv1dScanCombinedFn keeps it: what the first product gives, what the
// scan gives before and after the gate, and the norm's output, which the second product reads. Everything else, states
// and scores among it, backward makes again: its convolution, steps, scores and states are the forward's once more.
#pragma once

#include <string>

#include "sim/base/state_space.h"
#include "sim/lower/model/feed_forward.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

class MixerBranch : public FeedForward {
 public:
  MixerBranch(const UnitScope& scope, const std::string& prefix);

  void declare_parameters() override;
  void declare_buffers(BufferId input) override;
  void input_made_again() override { tp_.made_again(input_); }
  void forward_to_activation(bool again) override;
  BufferId forward_from_activation(bool again) override;
  BufferId backward(BufferId out_gradient, bool input_gradient) override;
  bool trains() const override { return tp_.trains(in_w_); }
  ParamId bias() const override { return -1; }

 private:
  // Buffers of a body: what forward makes and backward makes again.
  struct Chunks {
    BufferId xbc = -1, step = -1, l = -1, entering = -1, cb = -1;
  };
  std::int64_t in_width() const { return m_.mamba_in() / c_.tensor; }
  std::int64_t inner() const { return m_.mamba_inner() / c_.tensor; }
  StateSpace shape(StateSpacePart part) const;
  void op(StateSpacePart part, const std::vector<Operand>& reads, const std::vector<Operand>& writes);
  // What a part writes in the place `which` of its operands.
  BufferId made(StateSpacePart part, std::size_t which, const std::string& name, DType type);
  ParamId add_heads(const char* name, program::Init::Kind init);
  BufferId value(ParamId id) const;
  // `suffix`: of the buffers that it makes in the current body.
  Chunks chunks(const std::string& suffix);
  void norm_backward(BufferId d_out, BufferId d_y);
  void scan_backward(const Chunks& of, BufferId d_raw, BufferId d_in);
  // The gradient of a parameter that a part adds to.
  BufferId gradient(ParamId id) { return s_.parameters.accumulated_gradient(id); }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string prefix_, name_;
  TensorParallel tp_;
  ParamId in_w_ = -1, conv_w_ = -1, conv_b_ = -1, dt_bias_ = -1, a_log_ = -1, d_ = -1, gamma_ = -1, out_w_ = -1;
  BufferId input_ = -1, in_ = -1, y_ = -1, raw_ = -1, normed_ = -1, stats_ = -1;
};

}  // namespace rehearse::lower
