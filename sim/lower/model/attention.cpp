#include "sim/lower/model/attention.h"

#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/eager_passes.h"

namespace rehearse::lower {

using program::Elementwise;
using program::ElementwiseFn;

AttentionBranch::AttentionBranch(const UnitScope& scope, const std::string& prefix, int site, const Kind& kind)
    : s_(scope),
      c_(scope.context),
      m_(scope.context.model()),
      prefix_(prefix),
      name_(prefix + ".attention"),
      tp_(scope.context, scope.builder, scope.parameters, scope.fp8, scope.restored()),
      heads_(scope.context, scope.builder),
      core_(scope, name_, site, kind.window, 0, kind.chunk),
      rope_base_(kind.rope_base),
      scaled_angles_(kind.scaled && scope.context.model().rope_scaling != RotationScaling::none),
      rotates_(kind.rotates),
      head_norms_(scope, name_) {
  if (m_.latent_attention()) latent_.emplace(scope, prefix_, name_);
}

// The global shape of qkv keeps together what one rank must hold together: a key-value group.
void AttentionBranch::declare_parameters() {
  const std::int64_t h = m_.hidden, group = m_.heads / m_.kv_heads + 2;
  if (latent_) {
    latent_->declare_parameters();
  } else if (c_.shares_key_head()) {
    declare_apart();
  } else {
    qkv_w_ = add_product(s_, tp_, name_ + ".qkv", {m_.kv_heads, group * m_.head_dim, h}, 0, kWeightScale,
                         c_.adapts(&model::Adapters::qkv), 1, true);
    qkv_b_ = add_bias(s_, name_ + ".qkv.bias", {m_.kv_heads, group * m_.head_dim}, 0, m_.has_qkv_bias());
  }
  head_norms_.declare_parameters();
  core_.declare_parameters();
  proj_w_ = add_product(s_, tp_, name_ + ".proj", {h, m_.attention_width()}, 1, residual_weight_scale(m_),
                        c_.adapts(&model::Adapters::proj));
  proj_b_ = add_bias(s_, name_ + ".proj.bias", {h}, -1);
}

// In the parameters that one rank has in one, a head's queries' rows come first.
void AttentionBranch::declare_apart() {
  const std::int64_t h = m_.hidden, heads = m_.kv_heads, queries = m_.heads / heads * m_.head_dim,
                     all = queries + key_value_width();
  const auto part_of = [&](ParamSpec spec, const char* whole, bool key) {
    spec.whole = name_ + whole;
    spec.whole_shape = spec.global_shape;
    spec.whole_shape[1] = all;
    spec.whole_first = key ? queries : 0;
    for (std::size_t d = 2; d < spec.global_shape.size(); ++d) spec.whole_first *= spec.global_shape[d];
    spec.partial = key;
    spec.key_ranks = c_.key_ranks();
    return s_.parameters.add(s_.number, std::move(spec));
  };
  const auto weight = [&](const char* name, std::int64_t rows, bool key) {
    return part_of(weight_spec(s_, name_ + name, {heads, rows, h}, key ? -1 : 1, kWeightScale), ".qkv.weight", key);
  };
  qkv_w_ = weight(".q.weight", queries, false);
  kv_w_ = weight(".kv.weight", key_value_width(), true);
  if (!m_.has_qkv_bias()) return;
  const auto bias = [&](const char* name, std::int64_t rows, bool key) {
    return part_of({name_ + name, {heads, rows}, key ? -1 : 1, program::Init::Kind::zeros, 0}, ".qkv.bias", key);
  };
  qkv_b_ = bias(".q.bias", queries, false);
  kv_b_ = bias(".kv.bias", key_value_width(), true);
}

void AttentionBranch::copy_apart(const std::string& what, BufferId from, BufferId to, bool keys, bool packs) {
  const std::int64_t cols = keys ? key_value_width() : query_width();
  const program::Strides packed{qkv_width(), 0, keys ? query_width() : 0}, apart{cols, 0, 0};
  s_.builder.op(name_ + what, program::StridedCopy{c_.tokens, 1, cols, packs ? apart : packed, packs ? packed : apart},
                c_.compute, {{from}}, {{to}});
}

void AttentionBranch::product_apart(BufferId in) {
  RoleBuilder& b = s_.builder;
  const BufferId q = b.workspace(b.here(name_ + ".q"), c_.compute, {c_.tokens, query_width()}),
                 kv = b.workspace(b.here(name_ + ".kv"), c_.compute, {c_.tokens, key_value_width()});
  tp_.product(name_ + ".q.forward", in, qkv_w_, qkv_b_, q, query_width(), m_.hidden);
  tp_.product(name_ + ".kv.forward", in, kv_w_, kv_b_, kv, key_value_width(), m_.hidden);
  copy_apart(".q.pack", q, qkv_, false, true);
  copy_apart(".kv.pack", kv, qkv_, true, true);
}

BufferId AttentionBranch::backward_apart(BufferId d_qkv) {
  RoleBuilder& b = s_.builder;
  const BufferId d_q = b.workspace(b.here("d_" + name_ + ".q"), c_.compute, {c_.tokens, query_width()}),
                 d_kv = b.workspace(b.here("d_" + name_ + ".kv"), c_.compute, {c_.tokens, key_value_width()});
  copy_apart(".q.unpack", d_qkv, d_q, false, false);
  copy_apart(".kv.unpack", d_qkv, d_kv, true, false);
  return tp_.columns_backward(
      name_ + ".qkv", input_, m_.hidden,
      {{name_ + ".q", d_q, qkv_w_, qkv_b_, query_width()}, {name_ + ".kv", d_kv, kv_w_, kv_b_, key_value_width()}});
}

void AttentionBranch::declare_buffers(BufferId input) {
  input_ = input;
  if (latent_) latent_->declare_buffers(input, heads_.on());
  // What is exchanged is kept for backward as the core has it; the projection's input too.
  const bool again = latent_ && (latent_->makes_again() || s_.keeps_some());
  const Lifetime saved = s_.kept(), local = heads_.on() || again ? Lifetime::slot : saved;
  qkv_ = core_qkv_ = s_.builder.activation(name_ + ".qkv", c_.compute, {c_.tokens, qkv_width()}, local);
  head_norms_.declare_buffers();
  if (heads_.on())
    core_qkv_ = s_.builder.activation(name_ + ".qkv.heads", c_.compute,
                                      {c_.batch * c_.seq, qkv_width() / c_.plan().context}, saved);
  out_ = core_out_ = core_.declare(core_qkv_);
  if (heads_.on())
    out_ =
        s_.builder.activation(name_ + ".out.tokens", c_.compute, {c_.tokens, width()},
                              s_.keeps_some() ? saved : s_.of_product_input(saved, c_.adapts(&model::Adapters::proj)));
  if (keeps_projected() && !m_.post_norms)  // whose norm has its input kept
    output_ = s_.builder.activation(name_ + ".projected", c_.compute, {c_.local_tokens, m_.hidden}, saved);
  if (s_.fp8 && c_.scenario.training.e5m6_attention_output && !s_.recomputes()) declare_narrow_output();
}

void AttentionBranch::set_output(BufferId output) {
  output_ = output;
  if (keeps_projected()) s_.builder.set_lifetime(output, s_.kept());
}

void AttentionBranch::input_made_again() {
  if (latent_)
    latent_->input_made_again();
  else
    tp_.made_again(input_);
}

// In 12 bits: one of sign, five of exponent, six of mantissa, with a scale of fp32 for each 128 of a row.
void AttentionBranch::declare_narrow_output() {
  const std::int64_t n = s_.builder.buffer(out_).elements();
  s_.builder.set_lifetime(out_, Lifetime::slot);
  narrow_out_ = s_.builder.activation(name_ + ".out.e5m6", DType::u8, {n * 3 / 2 + n / 128 * 4}, Lifetime::micro_batch);
  tp_.made_again(out_);
}

void AttentionBranch::convert_output(bool back) {
  const Elementwise convert{back ? ElementwiseFn::fp8_widen : ElementwiseFn::fp8_cast,
                            s_.builder.buffer(out_).elements()};
  s_.builder.op(name_ + (back ? ".out.e5m6_widen" : ".out.e5m6_cast"), convert, c_.compute,
                {{back ? narrow_out_ : out_}}, {{back ? out_ : narrow_out_}});
}

void AttentionBranch::rope(bool backward, BufferId qkv) {
  if (m_.position != model::Position::rope || !rotates_) return;
  Elementwise op{backward ? ElementwiseFn::rope_backward : ElementwiseFn::rope,
                 c_.tokens * c_.kv_heads() * (c_.heads_of_key() + 1) * m_.rotated(), m_.rotated()};
  op.value = rope_base_;
  op.scaled_angles = scaled_angles_;
  s_.builder.op(name_ + ".rope" + (backward ? ".backward" : ""), op, c_.compute, {{qkv}}, {{qkv}});
  const std::int64_t head = c_.tokens * m_.head_dim, keys = head * c_.kv_heads();
  if (!c_.profile().fused_rope) {
    const EagerKernels eager = eager_rotary(op.elements, keys, c_.heads_of_key(), backward);
    s_.builder.takes_kernels(eager.kernels, eager.passes);
  }
  if (c_.profile().rope_in_halves) {
    const EagerKernels chain = eager_half_rotary(op.elements, backward);
    s_.builder.takes_kernels(chain.kernels, chain.passes);
  }
  if (!c_.profile().fused_scaled_rope && m_.rope_scaling == RotationScaling::yarn && m_.rope_factor > 1) {
    const EagerKernels chain = eager_scaled_rotary(op.elements, backward);
    s_.builder.takes_kernels(chain.kernels, chain.passes);
  }
  if (c_.profile().packed_heads) return;
  const EagerKernels copies = eager_head_copies(head * m_.heads / c_.tensor, keys, c_.batch, backward);
  s_.builder.takes_kernels(1 + copies.kernels, copies.passes);
}

void AttentionBranch::forward_core() {
  if (latent_) {
    latent_->forward(qkv_);
  } else {
    const BufferId in = tp_.product_input(prefix_ + ".norm1", input_, m_.hidden, qkv_w_);
    if (c_.shares_key_head())
      product_apart(in);
    else
      tp_.product(name_ + ".qkv.forward", in, qkv_w_, qkv_b_, qkv_, qkv_width(), m_.hidden);
    head_norms_.forward(qkv_);
    rope(false, qkv_);
  }
  if (heads_.on()) heads_.to_heads(name_ + ".qkv", qkv_, core_qkv_, qkv_width());
  core_.forward();
  if (narrow_out_ >= 0) convert_output(false);
  if (heads_.on()) heads_.to_tokens(name_ + ".out", core_out_, out_, width());
}

// Of recomputation op by op (plan::Recompute::ops) the first product, of queries, keys and values, is kept, and so is
// attention's result; the second, the projection, is not, unless it is the fifth (latent_attention.h) or summed over
// the tensor group.
BufferId AttentionBranch::forward(bool again) {
  const bool kept = again && s_.keeps_some();
  if (!kept)
    forward_core();
  else if (latent_)
    latent_->restore(qkv_);
  return kept && keeps_projected() ? output_ : forward_projection();
}

BufferId AttentionBranch::forward_projection() {
  RoleBuilder& b = s_.builder;
  const bool here = output_ >= 0 && !c_.sequence_parallel;
  const BufferId projected =
      here ? output_ : b.workspace(b.here(name_ + ".projected"), c_.compute, {c_.tokens, m_.hidden});
  return tp_.reduced_product(name_ + ".proj", out_, proj_w_, c_.adds_bias_in_product() ? proj_b_ : -1, projected,
                             m_.hidden, width(), output_);
}

BufferId AttentionBranch::backward(BufferId out_gradient, bool input_gradient) {
  const bool below = input_gradient || trains_first();
  if (narrow_out_ >= 0) {
    s_.builder.set_phase(Phase::recompute);
    convert_output(true);
    s_.builder.set_phase(Phase::backward);
  }
  const BufferId d_out =
      tp_.row_backward(name_ + ".proj", out_gradient, out_, proj_w_, proj_b_, m_.hidden, width(), -1, below);
  if (!below) return -1;
  if (latent_ && latent_->makes_again()) {
    s_.builder.set_phase(Phase::recompute);
    latent_->forward_again(qkv_);
    s_.builder.set_phase(Phase::backward);
  }
  BufferId d_core_out = d_out;
  if (heads_.on()) {
    d_core_out = s_.builder.workspace(s_.builder.here("d_" + name_ + ".out.heads"), c_.compute,
                                      s_.builder.buffer(core_out_).shape);
    heads_.to_heads("d_" + name_ + ".out", d_out, d_core_out, width());
  }
  BufferId d_qkv = core_.backward(d_core_out);
  const bool one_product = c_.profile().packed_products || (m_.norm != model::NormKind::rmsnorm && !m_.is_encoder());
  if (c_.profile().joins_heads && one_product && !latent_ && !core_.exchanges_keys()) {
    RoleBuilder& b = s_.builder;
    const BufferId joined = b.workspace(b.here("d_" + name_ + ".qkv.joined"), c_.compute, b.buffer(d_qkv).shape);
    b.op("d_" + name_ + ".qkv.join", Elementwise{ElementwiseFn::copy, b.buffer(d_qkv).elements()}, c_.compute,
         {{d_qkv}}, {{joined}});
    d_qkv = joined;
  }
  if (heads_.on()) {
    const BufferId d_heads = d_qkv;
    d_qkv = s_.builder.workspace(s_.builder.here("d_" + name_ + ".qkv.tokens"), c_.compute, {c_.tokens, qkv_width()});
    heads_.to_tokens("d_" + name_ + ".qkv", d_heads, d_qkv, qkv_width());
  }
  if (latent_) return latent_->backward(d_qkv, input_gradient);
  rope(true, d_qkv);
  head_norms_.backward(d_qkv);
  if (c_.shares_key_head()) return backward_apart(d_qkv);
  return tp_.column_backward(name_ + ".qkv", d_qkv, input_, qkv_w_, qkv_b_, qkv_width(), m_.hidden, input_gradient);
}

}  // namespace rehearse::lower
