#include "sim/lower/model/norm.h"

namespace rehearse::lower {

using program::Elementwise;
using program::ElementwiseFn;
using program::Norm;
using program::NormPart;

void NormLayer::declare_parameters(int unit) {
  gamma_ = parameters_.add(
      unit,
      {name_ + ".gamma", {cols_}, -1, zero_centered() ? program::Init::Kind::zeros : program::Init::Kind::ones, 0});
  if (context_.model().has_norm_bias())
    beta_ = parameters_.add(unit, {name_ + ".beta", {cols_}, -1, program::Init::Kind::zeros, 0});
}

BufferId NormLayer::declare_buffers(BufferId in, Lifetime saved, Lifetime out, DType out_type) {
  const std::int64_t per_row = context_.model().norm == model::NormKind::layernorm ? 2 : 1;
  in_ = in;
  wide_out_ = out_type == in_type_;
  stats_ = builder_.activation(name_ + ".stats", DType::f32, {context_.local_tokens, per_row}, saved);
  out_ = builder_.activation(name_ + ".out", out_type, {context_.local_tokens, cols_}, out);
  return out_;
}

Norm NormLayer::shape(NormPart part, bool add_residual) const {
  const model::Model& m = context_.model();
  Norm norm{part, m.norm == model::NormKind::rmsnorm, add_residual, context_.local_tokens, cols_};
  norm.zero_centered = zero_centered();
  return norm;
}

// The op added last, as the chain of kernels that RMSNorm is in PyTorch's eager mode.
void NormLayer::takes_chain(EagerKernels (*chain)(std::int64_t)) const {
  if (context_.profile().fused_norm || context_.model().norm != model::NormKind::rmsnorm) return;
  const EagerKernels eager = chain(context_.local_tokens * cols_);
  builder_.takes_kernels(eager.kernels, eager.passes);
}

void NormLayer::forward(BufferId into) {
  std::vector<Operand> reads{{in_}, {parameters_.value(gamma_)}};
  if (beta_ >= 0) reads.push_back({parameters_.value(beta_)});
  const BufferId to = into >= 0 ? into : out_;
  BufferId y = to;
  const std::vector<std::int64_t> rows{context_.local_tokens, cols_};
  if (casts()) y = builder_.workspace(builder_.here(name_ + ".wide"), in_type_, rows);
  std::vector<Operand> writes{{y}, {stats_}};
  if (is_narrow(builder_.buffer(y).dtype)) parameters_.fp8_scales().of_norm(name_ + ".out", y, reads, writes);
  builder_.op(name_ + ".forward", shape(NormPart::forward, false), in_type_, reads, writes);
  takes_chain(eager_rms_norm);
  if (!context_.profile().norm_reads_once && context_.model().norm == model::NormKind::layernorm)
    builder_.takes_kernels(1, {rows[0] * rows[1] * size_of(in_type_), 0});
  if (casts())
    builder_.op(name_ + ".cast", Elementwise{ElementwiseFn::cast, rows[0] * rows[1]}, context_.compute, {{y}}, {{to}});
}

void NormLayer::backward_weight(BufferId gradient) {
  const BufferId d_gamma = parameters_.accumulated_gradient(gamma_);
  std::vector<Operand> reads{{gradient}, {in_}, {stats_}, {d_gamma}}, writes{{d_gamma}};
  if (beta_ >= 0) {
    const BufferId d_beta = parameters_.accumulated_gradient(beta_);
    reads.push_back({d_beta});
    writes.push_back({d_beta});
  }
  builder_.op(name_ + ".backward_weight", shape(NormPart::backward_weight, false), in_type_, reads, writes);
  takes_chain(eager_rms_norm_weight);
  parameters_.gradient_done(gamma_);
  if (beta_ >= 0) parameters_.gradient_done(beta_);
}

BufferId NormLayer::backward(BufferId gradient, BufferId residual_gradient, int parts) {
  const std::vector<std::int64_t> rows{context_.local_tokens, cols_};
  if (casts()) {
    const BufferId wide = builder_.workspace(builder_.here("d_" + name_ + ".wide"), in_type_, rows);
    builder_.op(name_ + ".backward_cast", Elementwise{ElementwiseFn::cast, rows[0] * rows[1]}, in_type_, {{gradient}},
                {{wide}});
    gradient = wide;
  }
  if (parameters_.trains(gamma_)) backward_weight(gradient);
  const bool residual = residual_gradient >= 0, fused = residual && context_.profile().fused_residual_gradient;
  const BufferId out = builder_.workspace(builder_.here("d_" + name_), in_type_, rows);
  std::vector<Operand> reads{{gradient}, {in_}, {stats_}, {parameters_.value(gamma_)}};
  if (fused) reads.push_back({residual_gradient});
  builder_.op(name_ + ".backward_input", shape(NormPart::backward_input, fused), in_type_, reads, {{out}});
  takes_chain(eager_rms_norm_backward);
  const EagerKernels added = eager_sum(context_.tokens * cols_, parts);
  if (parts > 1) builder_.takes_kernels(1 + added.kernels, added.passes);
  if (!residual || fused) return out;
  const BufferId sum = builder_.workspace(builder_.here("d_" + name_ + ".sum"), in_type_, rows);
  builder_.op(name_ + ".add_residual_gradient", Elementwise{ElementwiseFn::add, rows[0] * rows[1]}, in_type_,
              {{out}, {residual_gradient}}, {{sum}});
  return sum;
}

}  // namespace rehearse::lower
