// Attention and embeddings of tokens in a list of layers.
#include <cmath>

#include "sim/lower/model/list_vectors.h"

namespace rehearse::lower {
namespace {

using program::Attention;
using program::AttentionPart;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;

// A linear layer of rows, with its bias if it has one, as torch.nn initialises it.
class RowProduct {
 public:
  RowProduct(const UnitScope& scope, std::string name, std::int64_t rows, std::int64_t in, std::int64_t out, bool bias)
      : s_(scope), name_(std::move(name)), rows_(rows), in_(in), out_(out), has_bias_(bias) {}

  void declare(std::vector<std::int64_t> weight_shape) {
    const double width = 1 / std::sqrt(static_cast<double>(in_));
    const auto uniform = program::Init::Kind::uniform;
    weight_ = s_.parameters.add(s_.number, {name_ + ".weight", std::move(weight_shape), -1, uniform, width});
    if (has_bias_) bias_ = s_.parameters.add(s_.number, {name_ + ".bias", {out_}, -1, uniform, width});
  }
  void forward(BufferId x, BufferId y) const {
    Gemm gemm{rows_, out_, in_, 1};
    gemm.transpose_b = true;
    gemm.bias = has_bias_;
    std::vector<Operand> reads{{x}, {s_.parameters.value(weight_)}};
    if (has_bias_) reads.push_back({s_.parameters.value(bias_)});
    s_.builder.op(name_ + ".forward", gemm, s_.context.compute, reads, {{y}});
  }
  // The gradient of x, into `dx`; -1: nobody asks for it.
  void backward(BufferId gradient, BufferId x, BufferId dx) const {
    RoleBuilder& b = s_.builder;
    if (has_bias_) {
      const BufferId db = s_.parameters.accumulated_gradient(bias_);
      b.op(name_ + ".bias_grad", Elementwise{ElementwiseFn::bias_grad, rows_ * out_, out_}, s_.context.compute,
           {{gradient}, {db}}, {{db}});
      s_.parameters.gradient_done(bias_);
    }
    if (dx >= 0)
      b.op(name_ + ".backward_input", Gemm{rows_, in_, out_, 1}, s_.context.compute,
           {{gradient}, {s_.parameters.value(weight_)}}, {{dx}});
    b.weight_part([&] {
      Gemm gemm{out_, in_, rows_, 1};
      gemm.transpose_a = true;
      s_.parameters.weight_gradient(weight_, name_ + ".backward_weight", gemm, gradient, x);
      s_.parameters.gradient_done(weight_);
    });
  }

 private:
  const UnitScope s_;
  std::string name_;
  std::int64_t rows_, in_, out_;
  bool has_bias_;
  ParamId weight_ = -1, bias_ = -1;
};

// One fused kernel between the product of queries, keys and values and the projection.
class ListAttention : public LayerPart {
 public:
  ListAttention(const UnitScope& scope, const model::Layer& layer, model::Extent in, const std::string& name)
      : s_(scope),
        layer_(layer),
        in_(in),
        name_(name),
        head_(in.channels / layer.heads),
        qkv_product_(scope, name + ".qkv", rows(), in.channels, qkv_width(), layer.bias),
        projection_(scope, name + ".proj", rows(), in.channels, in.channels, layer.bias) {}

  bool has_parameters() const override { return true; }
  bool restores() const override { return true; }
  Kept kept(bool) const override { return {true, false}; }
  void declare_parameters() override {
    qkv_product_.declare({layer_.kv_heads, (layer_.heads / layer_.kv_heads + 2) * head_, in_.channels});
    projection_.declare({in_.channels, in_.channels});
  }
  void declare(BufferId x, BufferId, bool) override {
    RoleBuilder& b = s_.builder;
    const DType type = s_.context.compute;
    x_ = x;
    qkv_ = b.activation(name_ + ".qkv.out", type, {rows(), qkv_width()}, s_.restored());
    out_ = b.activation(name_ + ".heads", type, {rows(), in_.channels}, s_.restored());
    logsumexp_ = b.activation(name_ + ".logsumexp", DType::f32, {rows(), layer_.heads}, s_.restored());
  }
  void forward(BufferId y, bool) override {
    qkv_product_.forward(x_, qkv_);
    s_.builder.op(name_ + ".flash_forward", part(AttentionPart::flash_forward), s_.context.compute, {{qkv_}},
                  {{out_}, {logsumexp_}});
    if (y >= 0) projection_.forward(out_, y);
  }
  BufferId backward(BufferId gradient, bool input_gradient) override {
    const BufferId d_out = like("heads", in_.channels), d_qkv = like("qkv", qkv_width());
    projection_.backward(gradient, out_, d_out);
    s_.builder.op(name_ + ".flash_backward", part(AttentionPart::flash_backward), s_.context.compute,
                  {{d_out}, {qkv_}, {out_}, {logsumexp_}}, {{d_qkv}});
    const BufferId dx = input_gradient ? like("input", in_.channels) : -1;
    qkv_product_.backward(d_qkv, x_, dx);
    return dx;
  }

 private:
  std::int64_t rows() const { return s_.context.batch * in_.vectors; }
  std::int64_t qkv_width() const { return (layer_.heads + 2 * layer_.kv_heads) * head_; }
  BufferId like(const std::string& what, std::int64_t width) const {
    return s_.builder.workspace(s_.builder.here("d_" + name_ + "." + what), s_.context.compute,
                                {in_.vectors, s_.context.batch, width});
  }
  Attention part(AttentionPart which) const {
    Attention a;
    a.part = which;
    a.causal = layer_.causal;
    a.micro_batch = s_.context.batch;
    a.heads = layer_.heads;
    a.kv_heads = layer_.kv_heads;
    a.seq = in_.vectors;
    a.head_dim = head_;
    return a;
  }

  const UnitScope s_;
  model::Layer layer_;
  model::Extent in_;
  std::string name_;
  std::int64_t head_;
  RowProduct qkv_product_, projection_;
  BufferId x_ = -1, qkv_ = -1, out_ = -1, logsumexp_ = -1;
};

// Tables are drawn as torch.nn.Embedding's, normal, but with a deviation of 0.02 as GPT-2's.
class ListEmbedding : public LayerPart {
 public:
  ListEmbedding(const UnitScope& scope, const model::Layer& layer, model::Extent in, std::string name)
      : s_(scope), layer_(layer), in_(in), name_(std::move(name)) {}

  bool has_parameters() const override { return true; }
  Kept kept(bool) const override { return {true, false}; }
  void declare_parameters() override {
    const auto add = [&](const std::string& what, std::int64_t rows) {
      ParamSpec spec{name_ + what, {rows, layer_.width}, -1, program::Init::Kind::normal, 0.02};
      spec.table = true;
      return s_.parameters.add(s_.number, std::move(spec));
    };
    table_ = add(".weight", layer_.vocab);
    if (layer_.positions) positions_ = add(".positions", in_.vectors);
  }
  void declare(BufferId x, BufferId, bool) override { x_ = x; }
  void forward(BufferId y, bool) override {
    RoleBuilder& b = s_.builder;
    const DType type = s_.context.compute;
    if (y < 0) y = b.workspace(b.here(name_ + ".out_again"), type, {in_.vectors, s_.context.batch, layer_.width});
    BufferId x = y;
    if (positions_ >= 0) x = b.workspace(b.here(name_ + ".rows"), type, {in_.vectors, s_.context.batch, layer_.width});
    b.op(name_ + ".forward", shape(false), type, {{x_}, {s_.parameters.value(table_)}}, {{x}});
    if (positions_ >= 0)
      b.op(name_ + ".positions.forward", Elementwise{ElementwiseFn::add_position, rows() * layer_.width, layer_.width},
           type, {{x}, {s_.parameters.value(positions_)}}, {{y}});
  }
  BufferId backward(BufferId gradient, bool) override {
    RoleBuilder& b = s_.builder;
    if (positions_ >= 0) {
      const BufferId target = s_.parameters.accumulated_gradient(positions_);
      b.op(name_ + ".positions.backward",
           Elementwise{ElementwiseFn::position_grad, rows() * layer_.width, layer_.width}, s_.context.compute,
           {{gradient}, {target}}, {{target}});
      s_.parameters.gradient_done(positions_);
    }
    const BufferId target = s_.parameters.accumulated_gradient(table_);
    b.op(name_ + ".backward", shape(true), s_.context.compute, {{gradient}, {x_}, {target}}, {{target}});
    s_.parameters.gradient_done(table_);
    return -1;
  }

 private:
  std::int64_t rows() const { return s_.context.batch * in_.vectors; }
  program::Embedding shape(bool backward) const { return {backward, false, rows(), layer_.vocab, layer_.width}; }

  const UnitScope s_;
  model::Layer layer_;
  model::Extent in_;
  std::string name_;
  ParamId table_ = -1, positions_ = -1;
  BufferId x_ = -1;
};

}  // namespace

std::unique_ptr<LayerPart> make_list_attention(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                               const std::string& name) {
  return std::make_unique<ListAttention>(scope, layer, in, name);
}

std::unique_ptr<LayerPart> make_list_embedding(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                               const std::string& name) {
  return std::make_unique<ListEmbedding>(scope, layer, in, name);
}

}  // namespace rehearse::lower
