#include "sim/lower/model/head_norms.h"

namespace rehearse::lower {

using program::HeadNorm;
using program::NormPart;

void HeadNorms::declare_parameters() {
  if (!on()) return;
  const auto add = [&](const char* what) {
    ParamSpec spec{name_ + what, {m_.head_dim}, -1, program::Init::Kind::ones, 0};
    if (m_.zero_centered_norms) spec.init = program::Init::Kind::zeros;
    spec.partial = true;
    return s_.parameters.add(s_.number, std::move(spec));
  };
  query_ = add(".q_norm.gamma");
  key_ = add(".k_norm.gamma");
}

HeadNorm HeadNorms::shape(NormPart part) const {
  HeadNorm norm{part, c_.tokens, c_.kv_heads(), c_.heads_of_key(), m_.head_dim};
  norm.zero_centered = m_.zero_centered_norms;
  return norm;
}

void HeadNorms::declare_buffers() {
  if (!on()) return;
  const HeadNorm norm = shape(NormPart::forward);
  raw_ = s_.builder.activation(name_ + ".qk.raw", c_.compute, {norm.heads(), m_.head_dim}, s_.kept());
  stats_ = s_.builder.activation(name_ + ".qk.stats", DType::f32, {norm.heads()}, s_.kept());
}

// The op added last, as the chains of kernels that RMSNorms are in PyTorch's eager mode, one for the queries and one
// for the keys.
void HeadNorms::takes_chains(EagerKernels (*chain)(std::int64_t)) const {
  if (c_.profile().fused_norm) return;
  const std::int64_t keys = c_.tokens * c_.kv_heads() * m_.head_dim;
  const EagerKernels of_queries = chain(keys * c_.heads_of_key()), of_keys = chain(keys);
  s_.builder.takes_kernels(of_queries.kernels + of_keys.kernels, {of_queries.passes.read + of_keys.passes.read,
                                                                  of_queries.passes.written + of_keys.passes.written});
}

void HeadNorms::forward(BufferId qkv) {
  if (!on()) return;
  s_.builder.op(name_ + ".qk_norm.forward", shape(NormPart::forward), c_.compute,
                {{qkv}, {s_.parameters.value(query_)}, {s_.parameters.value(key_)}}, {{qkv}, {raw_}, {stats_}});
  takes_chains(eager_rms_norm);
}

void HeadNorms::backward(BufferId d_qkv) {
  if (!on()) return;
  if (s_.parameters.trains(query_)) {
    const BufferId d_query = s_.parameters.accumulated_gradient(query_),
                   d_key = s_.parameters.accumulated_gradient(key_);
    s_.builder.op(name_ + ".qk_norm.backward_weight", shape(NormPart::backward_weight), c_.compute,
                  {{d_qkv}, {raw_}, {stats_}, {d_query}, {d_key}}, {{d_query}, {d_key}});
    takes_chains(eager_rms_norm_weight);
    s_.parameters.gradient_done(query_);
    s_.parameters.gradient_done(key_);
  }
  s_.builder.op(name_ + ".qk_norm.backward_input", shape(NormPart::backward_input), c_.compute,
                {{d_qkv}, {raw_}, {stats_}, {s_.parameters.value(query_)}, {s_.parameters.value(key_)}}, {{d_qkv}});
  takes_chains(eager_rms_norm_backward);
}

}  // namespace rehearse::lower
