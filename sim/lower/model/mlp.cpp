#include "sim/lower/model/mlp.h"

#include "sim/lower/model/activation_fn.h"
#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/eager_passes.h"

namespace rehearse::lower {

using program::Activation;
using program::ActivationFn;

MlpBranch::MlpBranch(const UnitScope& scope, const std::string& prefix, const std::string& name,
                     std::int64_t ffn_hidden)
    : s_(scope),
      c_(scope.context),
      m_(scope.context.model()),
      ffn_hidden_(ffn_hidden),
      prefix_(prefix),
      name_(prefix + "." + name),
      tp_(scope.context, scope.builder, scope.parameters, scope.fp8, scope.restored(),
          scope.context.model().parallel_block == model::ParallelBlock::one_norm ? ".mlp" : "") {}

// The global shape of a gated up-projection keeps its two halves together: a rank holds the same part of both.
void MlpBranch::declare_parameters() {
  const std::int64_t h = m_.hidden, f = ffn_hidden_;
  const bool adapted = c_.adapts(&model::Adapters::fc1);
  up_w_ = gated() ? add_product(s_, tp_, name_ + ".up", {2, f, h}, 1, kWeightScale, adapted, 2)
                  : add_product(s_, tp_, name_ + ".up", {f, h}, 0, kWeightScale, adapted);
  const bool biased = m_.has_mlp_bias();
  up_b_ =
      gated() ? add_bias(s_, name_ + ".up.bias", {2, f}, 1, biased) : add_bias(s_, name_ + ".up.bias", {f}, 0, biased);
  down_w_ =
      add_product(s_, tp_, name_ + ".down", {h, f}, 1, residual_weight_scale(m_), c_.adapts(&model::Adapters::fc2));
  down_b_ = add_bias(s_, name_ + ".down.bias", {h}, -1, biased);
}

// Of recomputation op by op (plan::Recompute::ops) every second product is kept. A gated layer's are queries, keys and
// values (counted as three), the projection, the gate, the up-projection, the down-projection; another's the first one
// as one product, and no gate. Behind five products of latent attention it is the others.
void MlpBranch::declare_buffers(BufferId input) {
  input_ = input;
  if (s_.keeps_some() && gated()) {
    const Lifetime first = keeps_first() ? s_.kept() : s_.restored(),
                   second = keeps_first() ? s_.restored() : s_.kept();
    up_ = s_.builder.activation(name_ + ".gate", c_.compute, {c_.tokens, width()}, first);
    value_ = s_.builder.activation(name_ + ".up", c_.compute, {c_.tokens, width()}, second);
  } else {
    up_ = s_.builder.activation(name_ + ".up", c_.compute, {c_.tokens, up_width()},
                                keeps_first() ? s_.kept() : s_.restored());
  }
  if (activation(false).separate && gated())
    silu_ = s_.builder.activation(name_ + ".silu", c_.compute, {c_.tokens, width()}, s_.restored());
  activation_ = s_.builder.activation(name_ + ".activation", c_.compute, {c_.tokens, width()},
                                      s_.of_product_input(s_.restored(), c_.adapts(&model::Adapters::fc2)));
}

std::vector<Operand> MlpBranch::up_operands() const {
  return parted() ? std::vector<Operand>{{up_}, {value_}} : std::vector<Operand>{{up_}};
}

Activation MlpBranch::activation(bool backward) const {
  return {activation_fn(m_), backward, c_.tokens, width(), !c_.profile().fused_elementwise};
}

bool MlpBranch::fuses_gelu() const {
  return c_.plan().fuses_gelu() && activation(false).fn == ActivationFn::gelu;
}

void MlpBranch::forward_to_activation(bool again) {
  const bool kept = again && s_.keeps_some();
  const bool first = !kept || !keeps_first(), second = parted() && (!kept || keeps_first());
  const bool fused = fuses_gelu() && first;
  if (first || second) {
    const BufferId in = tp_.product_input(prefix_ + ".norm2", input_, m_.hidden, up_w_);
    if (!parted())
      tp_.product(name_ + ".up.forward", in, up_w_, up_b_, up_, up_width(), m_.hidden, fused ? activation_ : -1);
    if (parted() && first) tp_.product_part(name_ + ".gate.forward", in, {up_w_, up_b_, 0, 2}, up_, width(), m_.hidden);
    if (second) tp_.product_part(name_ + ".up.forward", in, {up_w_, up_b_, 1, 2}, value_, width(), m_.hidden);
  }
  if (fused) return;
  std::vector<Operand> writes{{activation_}};
  if (silu_ >= 0) writes.push_back({silu_});
  s_.builder.op(name_ + ".activation.forward", activation(false), c_.compute, up_operands(), writes);
}

BufferId MlpBranch::forward_from_activation(bool /*again*/) {
  RoleBuilder& b = s_.builder;
  const bool here = output_ >= 0 && !c_.sequence_parallel;
  const BufferId projected =
      here ? output_ : b.workspace(b.here(name_ + ".projected"), c_.compute, {c_.tokens, m_.hidden});
  return tp_.reduced_product(name_ + ".down", activation_, down_w_, c_.adds_bias_in_product() ? down_b_ : -1, projected,
                             m_.hidden, width(), output_);
}

BufferId MlpBranch::backward(BufferId out_gradient, bool input_gradient) {
  return backward_from_activation(backward_to_activation(out_gradient, input_gradient), input_gradient);
}

BufferId MlpBranch::backward_to_activation(BufferId out_gradient, bool input_gradient) {
  const bool below = input_gradient || tp_.trains(up_w_);
  const BufferId d_act = tp_.row_backward(name_ + ".down", out_gradient, activation_, down_w_, down_b_, m_.hidden,
                                          width(), fuses_gelu() ? up_ : -1, below);
  return below ? d_act : -1;
}

BufferId MlpBranch::backward_from_activation(BufferId d_act, bool input_gradient) {
  if (d_act < 0) return -1;
  if (fuses_gelu()) return tp_.column_backward(name_ + ".up", d_act, input_, up_w_, up_b_, up_width(), m_.hidden);
  RoleBuilder& b = s_.builder;
  const BufferId d_up = b.workspace(b.here(prefix_ + ".d_mlp.up"), c_.compute, {c_.tokens, up_width()});
  std::vector<Operand> reads = up_operands();
  reads.insert(reads.begin(), {d_act});
  if (silu_ >= 0) reads.push_back({silu_});
  b.op(name_ + ".activation.backward", activation(true), c_.compute, reads, {{d_up}});
  if (c_.profile().splits_gate && gated()) {
    const EagerKernels joined = eager_join(c_.tokens * up_width());
    b.takes_kernels(1 + joined.kernels, joined.passes);
  }
  return tp_.column_backward(name_ + ".up", d_up, input_, up_w_, up_b_, up_width(), m_.hidden, input_gradient);
}

}  // namespace rehearse::lower
