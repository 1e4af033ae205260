#include "sim/lower/model/latent_attention.h"

#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/eager_passes.h"

namespace rehearse::lower {

using program::Elementwise;
using program::ElementwiseFn;
using program::LatentHeads;
using program::StridedCopy;

LatentProjections::LatentProjections(const UnitScope& scope, const std::string& prefix, const std::string& name)
    : s_(scope),
      c_(scope.context),
      m_(scope.context.model()),
      prefix_(prefix),
      name_(name),
      tp_(scope.context, scope.builder, scope.parameters, scope.fp8, scope.restored()),
      down_(scope.context, scope.builder, scope.parameters, scope.fp8, scope.restored(), ".down"),
      q_norm_(NormLayer::within_branch(scope.context, scope.builder, scope.parameters, name + ".q_norm",
                                       scope.context.model().q_lora_rank)),
      kv_norm_(NormLayer::within_branch(scope.context, scope.builder, scope.parameters, name + ".kv_norm",
                                        scope.context.model().kv_lora_rank)) {}

WholeProducts::Weight LatentProjections::add_down(const std::string& name, std::int64_t width) {
  const ParamSpec spec = weight_spec(s_, name + ".weight", {width, m_.hidden}, -1, kWeightScale);
  const ParamId weight = s_.parameters.add(s_.number, spec);
  if (adapts()) down_.add_adapter(s_.number, name, weight, spec);
  return {weight, width, m_.hidden};
}

// The global shapes of what is split keep together what one rank must hold together: a head.
void LatentProjections::declare_parameters() {
  if (queries_from_latent()) {
    q_down_ = add_down(name_ + ".q_down", m_.q_lora_rank);
    q_norm_.declare_parameters(s_.number);
  }
  q_up_w_ = add_product(s_, tp_, name_ + (queries_from_latent() ? ".q_up" : ".q"),
                        {m_.heads, m_.head_dim, queries_from_latent() ? m_.q_lora_rank : m_.hidden}, 0, kWeightScale,
                        adapts());
  kv_down_ = add_down(name_ + ".kv_down", down_width());
  kv_norm_.declare_parameters(s_.number);
  kv_up_w_ = add_product(s_, tp_, name_ + ".kv_up", {m_.heads, m_.qk_nope_head_dim + m_.v_head_dim, m_.kv_lora_rank}, 0,
                         kWeightScale, adapts());
}

void LatentProjections::declare_buffers(BufferId input, bool traded) {
  input_ = input, traded_ = traded;
  const bool by_op = s_.keeps_some(), keeps_heads = by_op && !queries_from_latent();
  const Lifetime saved = keeps_heads ? Lifetime::slot : s_.kept(),
                 normed = by_op || makes_again() ? Lifetime::slot : saved;
  const auto activation = [&](const std::string& name, std::int64_t width, Lifetime lifetime) {
    return s_.builder.activation(name_ + name, c_.compute, {c_.local_tokens, width}, lifetime);
  };
  if (queries_from_latent()) {
    q_latent_ = activation(".q_latent", m_.q_lora_rank, saved);
    q_norm_.declare_buffers(q_latent_, normed);
  }
  kv_latent_ = activation(".kv_latent", m_.kv_lora_rank, saved);
  kv_norm_.declare_buffers(kv_latent_, normed);
  if (makes_again()) {
    tp_.made_again(kv_norm_.out());
    if (queries_from_latent()) tp_.made_again(q_norm_.out());
  }
  const bool packs_again = (by_op && !traded) || makes_again();
  k_rope_ = activation(".k_rope", m_.qk_rope_head_dim, packs_again ? saved : Lifetime::slot);
  if (!keeps_heads || traded) return;
  q_ = s_.builder.activation(name_ + ".q", c_.compute, {c_.tokens, query_width()}, s_.kept());
  kv_ = s_.builder.activation(name_ + ".kv", c_.compute, {c_.tokens, key_value_width()}, s_.kept());
}

LatentHeads LatentProjections::heads(bool backward) const {
  return {backward, c_.tokens, m_.heads / c_.tensor, m_.qk_nope_head_dim, m_.qk_rope_head_dim, m_.v_head_dim};
}

BufferId LatentProjections::workspace(const std::string& name, std::int64_t rows, std::int64_t width) {
  return s_.builder.workspace(s_.builder.here(name), c_.compute, {rows, width});
}

void LatentProjections::copy_columns(const std::string& name, BufferId from, BufferId to, std::int64_t first,
                                     std::int64_t width, bool apart) {
  const program::Strides inside{down_width(), 0, first}, alone{width, 0, 0};
  s_.builder.op(name, StridedCopy{c_.local_tokens, 1, width, apart ? inside : alone, apart ? alone : inside},
                c_.compute, {{from}}, {{to}});
}

void LatentProjections::queries_down() {
  if (queries_from_latent()) down_.forward(name_ + ".q_down", input_, q_down_, q_latent_);
}

// The latent, and the columns that all heads' keys share.
void LatentProjections::keys_values_down() {
  const BufferId down = workspace(name_ + ".kv_down", c_.local_tokens, down_width());
  down_.forward(name_ + ".kv_down", input_, kv_down_, down);
  copy_columns(name_ + ".kv_latent", down, kv_latent_, 0, m_.kv_lora_rank, true);
  copy_columns(name_ + ".k_rope", down, k_rope_, m_.kv_lora_rank, m_.qk_rope_head_dim, true);
}

// [tokens, own heads, head_dim], not rotated.
BufferId LatentProjections::queries(bool kept) {
  if (kept && q_ >= 0) return q_;
  const BufferId q = q_ >= 0 ? q_ : workspace(name_ + ".q", c_.tokens, query_width());
  if (!queries_from_latent()) {
    const BufferId in = tp_.product_input(prefix_ + ".norm1", input_, m_.hidden);
    tp_.product(name_ + ".q.forward", in, q_up_w_, -1, q, query_width(), m_.hidden);
    return q;
  }
  q_norm_.forward();
  const BufferId in = tp_.product_input(name_ + ".q_norm", q_norm_.out(), m_.q_lora_rank);
  tp_.product(name_ + ".q_up.forward", in, q_up_w_, -1, q, query_width(), m_.q_lora_rank);
  return q;
}

// [tokens, own heads, qk_nope_head_dim + v_head_dim].
BufferId LatentProjections::keys_values(bool kept) {
  kv_norm_.forward();
  if (kept && kv_ >= 0) return kv_;
  const BufferId in = tp_.product_input(name_ + ".kv_norm", kv_norm_.out(), m_.kv_lora_rank);
  const BufferId kv = kv_ >= 0 ? kv_ : workspace(name_ + ".kv", c_.tokens, key_value_width());
  tp_.product(name_ + ".kv_up.forward", in, kv_up_w_, -1, kv, key_value_width(), m_.kv_lora_rank);
  return kv;
}

void LatentProjections::forward(BufferId qkv) {
  queries_down();
  keys_values_down();
  pack(qkv, false);
}

void LatentProjections::forward_again(BufferId qkv) {
  pack(qkv, false);
}

void LatentProjections::restore(BufferId qkv) {
  if (!queries_from_latent()) keys_values_down();
  if (!traded_) return pack(qkv, true);
  if (queries_from_latent()) q_norm_.forward();
  kv_norm_.forward();
}

void LatentProjections::pack(BufferId qkv, bool kept) {
  const BufferId q = queries(kept);
  const BufferId k_rope = tp_.gather_sequence(name_ + ".k_rope", k_rope_, m_.qk_rope_head_dim);
  const BufferId kv = keys_values(kept);
  s_.builder.op(name_ + ".heads", heads(false), c_.compute, {{q}, {kv}, {k_rope}}, {{qkv}});
  rotates_apart(false);
}

// Queries' columns of all heads and those that all keys share; copies of queries, keys and values are a kernel each.
void LatentProjections::rotates_apart(bool backward) {
  if (c_.plan().fused_latent_rope) return;
  const std::int64_t shared = c_.tokens * m_.qk_rope_head_dim;
  const EagerKernels queries = eager_latent_rotary(shared * (m_.heads / c_.tensor), backward),
                     keys = eager_latent_rotary(shared, backward);
  s_.builder.takes_kernels(3 + queries.kernels + keys.kernels, queries.passes);
  s_.builder.takes_kernels(1, keys.passes);
}

BufferId LatentProjections::queries_backward(BufferId d_q, bool input_gradient) {
  if (!queries_from_latent())
    return tp_.column_backward(name_ + ".q", d_q, input_, q_up_w_, -1, query_width(), m_.hidden, input_gradient);
  const BufferId d_normed =
      tp_.column_backward(name_ + ".q_up", d_q, q_norm_.out(), q_up_w_, -1, query_width(), m_.q_lora_rank);
  return down_.backward(name_ + ".q_down", q_norm_.backward(d_normed, -1), input_, q_down_, input_gradient);
}

BufferId LatentProjections::keys_values_backward(BufferId d_kv, BufferId d_k_rope, bool input_gradient) {
  const std::int64_t rank = m_.kv_lora_rank, rope = m_.qk_rope_head_dim;
  const BufferId d_own_rope = tp_.reduce_partial("d_" + name_ + ".k_rope", d_k_rope, rope);
  const BufferId d_normed =
      tp_.column_backward(name_ + ".kv_up", d_kv, kv_norm_.out(), kv_up_w_, -1, key_value_width(), rank);
  const BufferId d_latent = kv_norm_.backward(d_normed, -1);
  const BufferId d_down = workspace("d_" + name_ + ".kv_down", c_.local_tokens, down_width());
  copy_columns("d_" + name_ + ".kv_latent", d_latent, d_down, 0, rank, false);
  copy_columns("d_" + name_ + ".k_rope", d_own_rope, d_down, rank, rope, false);
  return down_.backward(name_ + ".kv_down", d_down, input_, kv_down_, input_gradient);
}

BufferId LatentProjections::backward(BufferId d_qkv, bool input_gradient) {
  const BufferId d_q = workspace("d_" + name_ + ".q", c_.tokens, query_width());
  const BufferId d_kv = workspace("d_" + name_ + ".kv", c_.tokens, key_value_width());
  const BufferId d_k_rope = workspace("d_" + name_ + ".k_rope", c_.tokens, m_.qk_rope_head_dim);
  s_.builder.op(name_ + ".heads.backward", heads(true), c_.compute, {{d_qkv}}, {{d_q}, {d_kv}, {d_k_rope}});
  rotates_apart(true);
  const BufferId from_keys = keys_values_backward(d_kv, d_k_rope, input_gradient),
                 from_queries = queries_backward(d_q, input_gradient);
  if (!input_gradient) return -1;
  const BufferId sum = workspace("d_" + name_ + ".input", c_.local_tokens, m_.hidden);
  s_.builder.op("d_" + name_ + ".input", Elementwise{ElementwiseFn::add, c_.local_tokens * m_.hidden}, c_.compute,
                {{from_keys}, {from_queries}}, {{sum}});
  return sum;
}

}  // namespace rehearse::lower
