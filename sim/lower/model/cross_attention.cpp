#include "sim/lower/model/cross_attention.h"

#include "sim/lower/model/block_parameters.h"

namespace rehearse::lower {

CrossAttention::CrossAttention(const UnitScope& scope, const std::string& prefix, int site, CrossMemory& memory)
    : s_(scope),
      c_(scope.context),
      m_(scope.context.model()),
      memory_(memory),
      prefix_(prefix),
      name_(prefix + ".cross"),
      tp_(scope.context, scope.builder, scope.parameters, false, scope.restored(), ".cross"),
      memory_tp_(*memory.encoder, scope.builder, scope.parameters, false, scope.restored(), ".memory"),
      core_(scope, name_, site, 0, memory.encoder->seq) {}

void CrossAttention::declare_parameters() {
  const std::int64_t h = m_.hidden, d = m_.head_dim;
  q_w_ = add_product(s_, tp_, name_ + ".q", {m_.heads, d, h}, 0, kWeightScale, false);
  kv_w_ = add_product(s_, memory_tp_, name_ + ".kv", {m_.heads, 2 * d, h}, 0, kWeightScale, false);
  proj_w_ = add_product(s_, tp_, name_ + ".proj", {h, m_.attention_width()}, 1, residual_weight_scale(m_), false);
  q_b_ = add_bias(s_, name_ + ".q.bias", {m_.heads, d}, 0);
  kv_b_ = add_bias(s_, name_ + ".kv.bias", {m_.heads, 2 * d}, 0);
  proj_b_ = add_bias(s_, name_ + ".proj.bias", {h}, -1);
}

void CrossAttention::declare_buffers(BufferId input) {
  input_ = input;
  q_ = s_.builder.activation(name_ + ".q", c_.compute, {c_.tokens, width()}, s_.kept());
  kv_ = s_.builder.activation(name_ + ".kv", c_.compute, {memory_.encoder->tokens, 2 * width()}, s_.kept());
  out_ = core_.declare(q_, kv_);
}

BufferId CrossAttention::forward() {
  const std::int64_t h = m_.hidden;
  const BufferId in = tp_.product_input(prefix_ + ".norm_cross", input_, h, q_w_);
  tp_.product(name_ + ".q.forward", in, q_w_, q_b_, q_, width(), h);
  const BufferId memory = memory_tp_.product_input(prefix_ + ".memory", memory_.value, h, kv_w_);
  memory_tp_.product(name_ + ".kv.forward", memory, kv_w_, kv_b_, kv_, 2 * width(), h);
  core_.forward();
  const BufferId projected = s_.builder.workspace(s_.builder.here(name_ + ".projected"), c_.compute, {c_.tokens, h});
  return tp_.reduced_product(name_ + ".proj", out_, proj_w_, c_.adds_bias_in_product() ? proj_b_ : -1, projected, h,
                             width());
}

BufferId CrossAttention::backward(BufferId out_gradient) {
  const std::int64_t h = m_.hidden;
  const BufferId d_out = tp_.row_backward(name_ + ".proj", out_gradient, out_, proj_w_, proj_b_, h, width());
  const BufferId d_q = core_.backward(d_out);
  const BufferId d_memory =
      memory_tp_.column_backward(name_ + ".kv", core_.d_kv(), memory_.value, kv_w_, kv_b_, 2 * width(), h);
  memory_.add_gradient("d_" + name_ + ".memory", d_memory);
  return tp_.column_backward(name_ + ".q", d_q, input_, q_w_, q_b_, width(), h);
}

}  // namespace rehearse::lower
