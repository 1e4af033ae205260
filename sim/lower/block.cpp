// One pre-norm transformer block: norm, attention, norm, MLP, each with a residual. gpt: LayerNorm, biases, GELU;
// llama: RMSNorm, rope, SwiGLU, grouped queries. What forward keeps for backward is, for unfused attention with
// dropout, the s b h (34 + 5 a s / h) bytes of Korthikanti et al. 2022 (arXiv 2205.05198, section 4), plus the norms'
// statistics.
#include <cmath>

#include "sim/lower/attention.h"
#include "sim/lower/norm.h"
#include "sim/lower/tensor_parallel.h"
#include "sim/lower/unit.h"

namespace rehearse::lower {
namespace {

using model::ActivationKind;
using program::Activation;
using program::ActivationFn;
using program::Elementwise;
using program::ElementwiseFn;

class Block : public Unit {
 public:
  Block(UnitScope scope, int layer)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        name_("layer" + std::to_string(layer)),
        layer_(layer),
        tp_(scope.context, scope.builder, scope.parameters),
        core_(scope.context, scope.builder, name_ + ".attention", layer * 4 + 1),
        norm1_(scope.context, scope.builder, scope.parameters, name_ + ".norm1"),
        norm2_(scope.context, scope.builder, scope.parameters, name_ + ".norm2") {}

  void declare_parameters() override;
  BufferId declare_buffers(BufferId input, Lifetime output) override;
  void forward(bool again) override;
  BufferId backward(BufferId output_gradient, bool input_gradient) override;
  bool recomputable() const override { return true; }

 private:
  std::int64_t up_width() const { return (gated() ? 2 : 1) * m_.ffn_hidden / c_.tensor; }
  std::int64_t ffn() const { return m_.ffn_hidden / c_.tensor; }
  std::int64_t qkv_width() const { return m_.qkv_width() / c_.tensor; }
  std::int64_t attention_width() const { return m_.heads * m_.head_dim / c_.tensor; }
  bool gated() const { return m_.activation == ActivationKind::swiglu; }
  bool dropout() const { return m_.dropout > 0; }

  ParamId weight(const std::string& name, std::vector<std::int64_t> shape, int tensor_dim, double scale);
  ParamId bias(const std::string& name, std::vector<std::int64_t> shape, int tensor_dim);
  void residual(const std::string& name, BufferId x, ParamId bias, BufferId residual, BufferId out, BufferId mask,
                int site);
  Elementwise row_op(ElementwiseFn fn, int site) const;
  // The bias that goes into the product, where it is not added with the residual.
  ParamId in_product(ParamId bias) const { return c_.profile().fused_elementwise ? -1 : bias; }
  BufferId residual_backward(const std::string& name, BufferId gradient, BufferId mask);
  Activation activation(bool backward) const;
  void rope(bool backward, BufferId qkv);
  BufferId attention_backward(BufferId gradient);
  BufferId mlp_backward(BufferId gradient);
  std::string temp(const std::string& what) const { return s_.builder.here(name_ + "." + what); }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string name_;
  int layer_;
  TensorParallel tp_;
  AttentionCore core_;
  NormLayer norm1_, norm2_;
  ParamId qkv_w_ = -1, qkv_b_ = -1, proj_w_ = -1, proj_b_ = -1, up_w_ = -1, up_b_ = -1, down_w_ = -1, down_b_ = -1;
  BufferId x_ = -1, qkv_ = -1, attn_ = -1, mask1_ = -1, y1_ = -1, up_ = -1, act_ = -1, mask2_ = -1, y_ = -1;
};

ParamId Block::weight(const std::string& name, std::vector<std::int64_t> shape, int tensor_dim, double scale) {
  return s_.parameters.add(s_.number,
                           {name_ + "." + name, std::move(shape), tensor_dim, program::Init::Kind::normal, scale});
}

ParamId Block::bias(const std::string& name, std::vector<std::int64_t> shape, int tensor_dim) {
  if (!m_.bias) return -1;
  return s_.parameters.add(s_.number,
                           {name_ + "." + name, std::move(shape), tensor_dim, program::Init::Kind::zeros, 0});
}

// Global shapes keep what one rank must hold together: qkv a key-value group, the gated up-projection its two halves.
void Block::declare_parameters() {
  const std::int64_t h = m_.hidden, group = m_.heads / m_.kv_heads + 2;
  const double std = 0.02,
               deep = 0.02 / std::sqrt(2.0 * static_cast<double>(m_.layers));  // GPT-2: residual projections
  norm1_.declare_parameters(s_.number);
  qkv_w_ = weight("attention.qkv.weight", {m_.kv_heads, group * m_.head_dim, h}, 0, std);
  qkv_b_ = bias("attention.qkv.bias", {m_.kv_heads, group * m_.head_dim}, 0);
  proj_w_ = weight("attention.proj.weight", {h, m_.heads * m_.head_dim}, 1, deep);
  proj_b_ = bias("attention.proj.bias", {h}, -1);
  norm2_.declare_parameters(s_.number);
  const std::int64_t f = m_.ffn_hidden;
  up_w_ = gated() ? weight("mlp.up.weight", {2, f, h}, 1, std) : weight("mlp.up.weight", {f, h}, 0, std);
  up_b_ = gated() ? bias("mlp.up.bias", {2, f}, 1) : bias("mlp.up.bias", {f}, 0);
  down_w_ = weight("mlp.down.weight", {h, f}, 1, deep);
  down_b_ = bias("mlp.down.bias", {h}, -1);
}

BufferId Block::declare_buffers(BufferId input, Lifetime output) {
  const Lifetime saved = c_.plan().recompute == plan::Recompute::full ? Lifetime::slot : Lifetime::micro_batch;
  RoleBuilder& b = s_.builder;
  const std::vector<std::int64_t> row{c_.local_tokens, m_.hidden};
  x_ = input;
  norm1_.declare_buffers(x_, saved);
  qkv_ = b.activation(name_ + ".attention.qkv", c_.compute, {c_.tokens, qkv_width()}, saved);
  attn_ = core_.declare(qkv_, saved);
  if (dropout()) mask1_ = b.activation(name_ + ".attention.residual_mask", DType::u8, row, saved);
  y1_ = b.activation(name_ + ".attention.residual", c_.residual, row, saved);
  norm2_.declare_buffers(y1_, saved);
  up_ = b.activation(name_ + ".mlp.up", c_.compute, {c_.tokens, up_width()}, saved);
  act_ = b.activation(name_ + ".mlp.activation", c_.compute, {c_.tokens, ffn()}, saved);
  if (dropout()) mask2_ = b.activation(name_ + ".mlp.residual_mask", DType::u8, row, saved);
  y_ = b.activation(name_ + ".out", c_.residual, row, output);
  return y_;
}

Elementwise Block::row_op(ElementwiseFn fn, int site) const {
  Elementwise op{fn, c_.local_tokens * m_.hidden, m_.hidden};
  op.dropout = m_.dropout;
  op.site = site;
  op.rows_split_over_tensor = c_.sequence_parallel;
  return op;
}

void Block::residual(const std::string& name, BufferId x, ParamId bias, BufferId residual, BufferId out, BufferId mask,
                     int site) {
  if (!c_.profile().fused_elementwise) {
    if (mask >= 0) {
      const BufferId kept = s_.builder.workspace(temp(name + ".dropped"), c_.compute, {c_.local_tokens, m_.hidden});
      s_.builder.op(name_ + "." + name + ".dropout", row_op(ElementwiseFn::dropout, site), c_.compute, {{x}},
                    {{kept}, {mask}});
      x = kept;
    }
    s_.builder.op(name_ + "." + name, Elementwise{ElementwiseFn::add, c_.local_tokens * m_.hidden}, c_.residual,
                  {{x}, {residual}}, {{out}});
    return;
  }
  Elementwise op = row_op(ElementwiseFn::bias_dropout_add, site);
  op.bias = bias >= 0;
  std::vector<Operand> reads{{x}}, writes{{out}};
  if (bias >= 0) reads.push_back({s_.parameters.value(bias)});
  reads.push_back({residual});
  if (mask >= 0) writes.push_back({mask});
  s_.builder.op(name_ + "." + name, op, c_.compute, reads, writes);
}

void Block::rope(bool backward, BufferId qkv) {
  if (m_.position != model::Position::rope) return;
  Elementwise op{backward ? ElementwiseFn::rope_backward : ElementwiseFn::rope,
                 c_.tokens * (m_.heads + m_.kv_heads) / c_.tensor * m_.head_dim, m_.head_dim};
  s_.builder.op(name_ + ".attention.rope" + (backward ? ".backward" : ""), op, c_.compute, {{qkv}}, {{qkv}});
}

Activation Block::activation(bool backward) const {
  const ActivationFn fn = gated()                                 ? ActivationFn::swiglu
                          : m_.activation == ActivationKind::relu ? ActivationFn::relu
                                                                  : ActivationFn::gelu;
  return {fn, backward, c_.tokens, ffn(), !c_.profile().fused_elementwise};
}

// Again: stops after what backward reads where the framework does (nothing after the activation without dropout).
void Block::forward(bool again) {
  RoleBuilder& b = s_.builder;
  norm1_.forward();
  const BufferId in1 = tp_.gather_sequence(name_ + ".norm1", norm1_.out(), m_.hidden);
  tp_.product(name_ + ".attention.qkv.forward", in1, qkv_w_, qkv_b_, qkv_, qkv_width(), m_.hidden);
  rope(false, qkv_);
  core_.forward();
  const BufferId projected = b.workspace(temp("attention.projected"), c_.compute, {c_.tokens, m_.hidden});
  tp_.product(name_ + ".attention.proj.forward", attn_, proj_w_, in_product(proj_b_), projected, m_.hidden,
              attention_width());
  const BufferId summed = tp_.reduce_partial(name_ + ".attention.proj", projected, m_.hidden);
  residual("attention.residual.forward", summed, proj_b_, x_, y1_, mask1_, layer_ * 4 + 2);
  norm2_.forward();
  const BufferId in2 = tp_.gather_sequence(name_ + ".norm2", norm2_.out(), m_.hidden);
  tp_.product(name_ + ".mlp.up.forward", in2, up_w_, up_b_, up_, up_width(), m_.hidden);
  b.op(name_ + ".mlp.activation.forward", activation(false), c_.compute, {{up_}}, {{act_}});
  if (again && !dropout() && c_.profile().recompute_stops_early) return;
  const BufferId mlp = b.workspace(temp("mlp.projected"), c_.compute, {c_.tokens, m_.hidden});
  tp_.product(name_ + ".mlp.down.forward", act_, down_w_, in_product(down_b_), mlp, m_.hidden, ffn());
  const BufferId out = tp_.reduce_partial(name_ + ".mlp.down", mlp, m_.hidden);
  BufferId y = y_;
  if (again) y = b.workspace(temp("out_again"), c_.residual, {c_.local_tokens, m_.hidden});
  residual("mlp.residual.forward", out, down_b_, y1_, y, mask2_, layer_ * 4 + 3);
}

// The gradient of what was added to the residual stream, in the type of products.
BufferId Block::residual_backward(const std::string& name, BufferId gradient, BufferId mask) {
  const std::vector<std::int64_t> row{c_.local_tokens, m_.hidden};
  if (c_.residual != c_.compute) {
    const BufferId narrow = s_.builder.workspace(temp("d_" + name + ".narrow"), c_.compute, row);
    s_.builder.op(name_ + "." + name + ".backward_cast", Elementwise{ElementwiseFn::cast, row[0] * row[1]}, c_.compute,
                  {{gradient}}, {{narrow}});
    gradient = narrow;
  }
  if (mask < 0) return gradient;
  const BufferId out = s_.builder.workspace(temp("d_" + name), c_.compute, row);
  Elementwise op{ElementwiseFn::dropout_backward, row[0] * row[1]};
  op.dropout = m_.dropout;
  s_.builder.op(name_ + "." + name + ".dropout_backward", op, c_.compute, {{gradient}, {mask}}, {{out}});
  return out;
}

// Gradient of the MLP branch's input (after norm2), [local_tokens, hidden].
BufferId Block::mlp_backward(BufferId gradient) {
  const BufferId d_out = residual_backward("mlp", gradient, mask2_);
  const BufferId d_act = tp_.row_backward(name_ + ".mlp.down", d_out, act_, down_w_, down_b_, m_.hidden, ffn());
  const BufferId d_up = s_.builder.workspace(temp("d_mlp.up"), c_.compute, {c_.tokens, up_width()});
  s_.builder.op(name_ + ".mlp.activation.backward", activation(true), c_.compute, {{d_act}, {up_}}, {{d_up}});
  return tp_.column_backward(name_ + ".mlp.up", d_up, norm2_.out(), up_w_, up_b_, up_width(), m_.hidden);
}

BufferId Block::attention_backward(BufferId gradient) {
  const BufferId d_out = residual_backward("attention", gradient, mask1_);
  const BufferId d_attn =
      tp_.row_backward(name_ + ".attention.proj", d_out, attn_, proj_w_, proj_b_, m_.hidden, attention_width());
  const BufferId d_qkv = core_.backward(d_attn);
  rope(true, d_qkv);
  return tp_.column_backward(name_ + ".attention.qkv", d_qkv, norm1_.out(), qkv_w_, qkv_b_, qkv_width(), m_.hidden);
}

BufferId Block::backward(BufferId output_gradient, bool /*input_gradient*/) {
  s_.builder.set_phase(Phase::backward);
  const BufferId d_norm2 = mlp_backward(output_gradient);
  const BufferId d_y1 = norm2_.backward(d_norm2, output_gradient);
  const BufferId d_norm1 = attention_backward(d_y1);
  return norm1_.backward(d_norm1, d_y1);
}

}  // namespace

std::unique_ptr<Unit> make_block(UnitScope scope, int layer) {
  return std::make_unique<Block>(scope, layer);
}

}  // namespace rehearse::lower
