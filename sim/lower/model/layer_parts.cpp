// The parts that multiply (linear layers, convolutions), that act on elements, that pool, maps times numbers that a
// list makes of them, and the sum of two lists.
// list_norms.cpp has the norms.
#include <cmath>

#include "sim/base/check.h"
#include "sim/lower/model/layer_part.h"
#include "sim/lower/model/list_norms.h"
#include "sim/lower/model/list_vectors.h"

namespace rehearse::lower {
namespace {

using model::Extent;
using model::Layer;
using model::LayerKind;
using program::Activation;
using program::ActivationFn;
using program::Conv2d;
using program::ConvPart;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;

// What every part has: its layer, and buffers of the shapes of its input and output.
class PartBase : public LayerPart {
 public:
  PartBase(const UnitScope& scope, const Layer& layer, Extent in, std::string name)
      : s_(scope), layer_(layer), in_(in), out_(model::extent_after(layer, in)), name_(std::move(name)) {}
  void declare(BufferId x, BufferId y, bool) override { x_ = x, y_ = y; }

 protected:
  BufferId like(const std::string& what, Extent extent) const {
    return s_.builder.workspace(s_.builder.here(what), s_.context.compute, batch_shape(s_.context, extent));
  }
  BufferId gradient_of_input() const { return like("d_" + name_ + ".input", in_); }
  // Of a recomputation whose output nobody reads.
  BufferId target(BufferId y) const { return y >= 0 ? y : like(name_ + ".out_again", out_); }

  const UnitScope s_;
  Layer layer_;
  Extent in_, out_;
  std::string name_;
  BufferId x_ = -1, y_ = -1;
};

// A weight, and perhaps a bias, as torch.nn initialises them: uniform, of half width 1 / sqrt(fan-in).
class ProductPart : public PartBase {
 public:
  using PartBase::PartBase;
  bool has_parameters() const override { return true; }
  Kept kept(bool) const override { return {true, false}; }

 protected:
  void add_parameters(std::vector<std::int64_t> shape, std::int64_t fan_in) {
    const double width = 1 / std::sqrt(static_cast<double>(fan_in));
    const auto uniform = program::Init::Kind::uniform;
    weight_ = s_.parameters.add(s_.number, {name_ + ".weight", std::move(shape), -1, uniform, width});
    if (layer_.bias) bias_ = s_.parameters.add(s_.number, {name_ + ".bias", {layer_.width}, -1, uniform, width});
  }
  std::vector<Operand> forward_reads() const {
    std::vector<Operand> reads{{x_}, {s_.parameters.value(weight_)}};
    if (bias_ >= 0) reads.push_back({s_.parameters.value(bias_)});
    return reads;
  }
  ParamId weight_ = -1, bias_ = -1;
};

class LinearPart : public ProductPart {
 public:
  using ProductPart::ProductPart;
  void declare_parameters() override { add_parameters({layer_.width, width_in()}, width_in()); }

  void forward(BufferId y, bool) override {
    Gemm gemm{rows(), layer_.width, width_in(), 1};
    gemm.transpose_b = true;
    gemm.bias = layer_.bias;
    s_.builder.op(name_ + ".forward", gemm, s_.context.compute, forward_reads(), {{y}});
  }

  BufferId backward(BufferId gradient, bool input_gradient) override {
    RoleBuilder& b = s_.builder;
    const std::int64_t n = layer_.width, k = width_in(), rows = this->rows();
    const bool fused = bias_ >= 0 && s_.context.plan().fuses_bias_gradients();
    if (bias_ >= 0 && !fused) {
      const BufferId db = s_.parameters.accumulated_gradient(bias_);
      b.op(name_ + ".bias_grad", Elementwise{ElementwiseFn::bias_grad, rows * n, n}, s_.context.compute,
           {{gradient}, {db}}, {{db}});
      s_.parameters.gradient_done(bias_);
    }
    BufferId dx = -1;
    if (input_gradient) {
      dx = gradient_of_input();
      b.op(name_ + ".backward_input", Gemm{rows, k, n, 1}, s_.context.compute,
           {{gradient}, {s_.parameters.value(weight_)}}, {{dx}});
    }
    b.weight_part([&] {
      Gemm gemm{n, k, rows, 1};
      gemm.transpose_a = true;
      s_.parameters.weight_gradient(weight_, name_ + ".backward_weight", gemm, gradient, x_, fused ? bias_ : -1);
      s_.parameters.gradient_done(weight_);
      if (fused) s_.parameters.gradient_done(bias_);
    });
    return dx;
  }

 private:
  // Of an example, or of each of its tokens.
  std::int64_t width_in() const { return in_.rows() ? in_.channels : in_.elements(); }
  std::int64_t rows() const { return s_.context.batch * (in_.rows() ? in_.vectors : 1); }
};

class ConvolutionPart : public ProductPart {
 public:
  using ProductPart::ProductPart;
  void declare_parameters() override {
    const std::int64_t k = layer_.kernel;
    const std::int64_t in = in_.channels / layer_.groups;
    add_parameters({layer_.width, in, k, k}, in * k * k);
  }

  void forward(BufferId y, bool) override {
    s_.builder.op(name_ + ".forward", conv(ConvPart::forward), s_.context.compute, forward_reads(), {{y}});
  }

  BufferId backward(BufferId gradient, bool input_gradient) override {
    RoleBuilder& b = s_.builder;
    BufferId dx = -1;
    if (input_gradient) {
      dx = gradient_of_input();
      b.op(name_ + ".backward_input", conv(ConvPart::backward_input), s_.context.compute,
           {{gradient}, {s_.parameters.value(weight_)}}, {{dx}});
    }
    b.weight_part([&] {
      std::vector<Operand> sums{{s_.parameters.accumulated_gradient(weight_)}};
      if (bias_ >= 0) sums.push_back({s_.parameters.accumulated_gradient(bias_)});
      std::vector<Operand> reads{{gradient}, {x_}};
      reads.insert(reads.end(), sums.begin(), sums.end());
      b.op(name_ + ".backward_weight", conv(ConvPart::backward_weight), s_.context.compute, reads, sums);
      s_.parameters.gradient_done(weight_);
      if (bias_ >= 0) s_.parameters.gradient_done(bias_);
    });
    return dx;
  }

 private:
  Conv2d conv(ConvPart part) const {
    return {part,
            s_.context.batch,
            in_.channels,
            layer_.width,
            in_.size,
            in_.size,
            layer_.kernel,
            layer_.stride,
            layer_.pad,
            layer_.bias,
            s_.context.channels_first(),
            layer_.groups};
  }
};

// relu's slope, and tanh's and sigmoid's, come from the output where it stays, as torch takes them; gelu's and silu's
// from the input.
class ActivationPart : public PartBase {
 public:
  using PartBase::PartBase;
  Kept kept(bool output_stays) const override {
    const bool from_output = by_output() || (layer_.kind == LayerKind::relu && output_stays);
    return {!from_output, from_output};
  }
  bool restores() const override { return copies_; }
  // Where tanh's or sigmoid's output does not stay, a copy of it does.
  void declare(BufferId x, BufferId y, bool output_stays) override {
    PartBase::declare(x, y, output_stays);
    saved_ = kept(output_stays).output ? y : x;
    copies_ = by_output() && !output_stays;
    if (copies_)
      saved_ = s_.builder.activation(name_ + ".kept", s_.context.compute, batch_shape(s_.context, out_), s_.restored());
  }
  void forward(BufferId y, bool) override {
    s_.builder.op(name_ + ".forward", shape(false), s_.context.compute, {{x_}}, {{copies_ ? saved_ : y}});
    if (copies_ && y >= 0)
      s_.builder.op(name_ + ".copy", Elementwise{ElementwiseFn::copy, s_.context.batch * in_.elements()},
                    s_.context.compute, {{saved_}}, {{y}});
  }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId dx = gradient_of_input();
    s_.builder.op(name_ + ".backward", shape(true), s_.context.compute, {{gradient}, {saved_}}, {{dx}});
    return dx;
  }

 private:
  bool by_output() const { return layer_.kind == LayerKind::tanh || layer_.kind == LayerKind::sigmoid; }
  Activation shape(bool backward) const {
    const ActivationFn fn = layer_.kind == LayerKind::relu      ? ActivationFn::relu
                            : layer_.kind == LayerKind::gelu    ? ActivationFn::gelu
                            : layer_.kind == LayerKind::sigmoid ? ActivationFn::sigmoid
                            : layer_.kind == LayerKind::silu    ? ActivationFn::silu
                                                                : ActivationFn::tanh;
    return {fn, backward, s_.context.batch, in_.elements()};
  }
  BufferId saved_ = -1;
  bool copies_ = false;
};

class DropoutPart : public PartBase {
 public:
  DropoutPart(const UnitScope& scope, const Layer& layer, Extent in, std::string name, int site)
      : PartBase(scope, layer, in, std::move(name)), site_(site) {}
  Kept kept(bool) const override { return {}; }
  bool restores() const override { return true; }
  void declare(BufferId x, BufferId y, bool output_stays) override {
    PartBase::declare(x, y, output_stays);
    mask_ = s_.builder.activation(name_ + ".mask", DType::u8, batch_shape(s_.context, in_), s_.restored());
  }
  void forward(BufferId y, bool) override {
    s_.builder.op(name_ + ".forward", shape(ElementwiseFn::dropout), s_.context.compute, {{x_}},
                  {{target(y)}, {mask_}});
  }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId dx = gradient_of_input();
    s_.builder.op(name_ + ".backward", shape(ElementwiseFn::dropout_backward), s_.context.compute,
                  {{gradient}, {mask_}}, {{dx}});
    return dx;
  }

 private:
  Elementwise shape(ElementwiseFn fn) const {
    Elementwise e{fn, s_.context.batch * in_.elements(), in_.rows() ? in_.channels : in_.elements()};
    e.dropout = layer_.rate;
    e.site = site_;
    return e;
  }
  int site_;
  BufferId mask_ = -1;
};

class MaxPoolPart : public PartBase {
 public:
  using PartBase::PartBase;
  Kept kept(bool) const override { return {}; }
  bool restores() const override { return true; }
  void declare(BufferId x, BufferId y, bool output_stays) override {
    PartBase::declare(x, y, output_stays);
    argmax_ = s_.builder.activation(name_ + ".argmax", DType::i32, batch_shape(s_.context, out_), s_.restored());
  }
  void forward(BufferId y, bool) override {
    s_.builder.op(name_ + ".forward", shape(false), s_.context.compute, {{x_}}, {{target(y)}, {argmax_}});
  }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId dx = gradient_of_input();
    s_.builder.op(name_ + ".backward", shape(true), s_.context.compute, {{gradient}, {argmax_}}, {{dx}});
    return dx;
  }

 private:
  program::Pool2d shape(bool backward) const {
    return {backward, s_.context.batch, in_.channels, in_.size, in_.size, layer_.kernel, layer_.stride, layer_.pad};
  }
  BufferId argmax_ = -1;
};

class AveragePoolPart : public PartBase {
 public:
  using PartBase::PartBase;
  Kept kept(bool) const override { return {}; }
  void forward(BufferId y, bool) override {
    s_.builder.op(name_ + ".forward", shape(false), s_.context.compute, {{x_}}, {{y}});
  }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId dx = gradient_of_input();
    s_.builder.op(name_ + ".backward", shape(true), s_.context.compute, {{gradient}}, {{dx}});
    return dx;
  }

 private:
  program::AveragePool shape(bool backward) const { return {backward, s_.context.batch, in_.channels, in_.pixels()}; }
};

// y = f x, f a number for each map that the body makes of x: the gradient of x comes through both.
class ScalePart : public PartBase {
 public:
  ScalePart(const UnitScope& scope, const Layer& layer, Extent in, const std::string& name, int site)
      : PartBase(scope, layer, in, name), body_(s_, layer.body, in, name + ".body", 16 * site + 1) {}
  void declare_parameters() override { body_.declare_parameters(); }
  bool has_parameters() const override { return body_.has_parameters(); }
  Kept kept(bool) const override { return {true, false}; }
  bool restores() const override { return true; }
  void declare(BufferId x, BufferId y, bool output_stays) override {
    PartBase::declare(x, y, output_stays);
    factors_ = body_.declare(x, name_ + ".factors", s_.restored());
  }
  void forward(BufferId y, bool again) override {
    body_.forward(again);
    if (y >= 0) op("forward", false, {{x_}, {factors_}}, {{y}});
  }
  BufferId backward(BufferId gradient, bool input_gradient) override {
    const BufferId dx = like("d_" + name_ + ".maps", in_), d_factors = like("d_" + name_ + ".factors", {in_.channels});
    op("backward", true, {{gradient}, {x_}, {factors_}}, {{dx}, {d_factors}});
    const BufferId through_body = body_.backward(d_factors, input_gradient);
    if (!input_gradient) return -1;
    const BufferId sum = gradient_of_input();
    s_.builder.op(name_ + ".add_gradient", Elementwise{ElementwiseFn::add, s_.context.batch * in_.elements()},
                  s_.context.compute, {{dx}, {through_body}}, {{sum}});
    return sum;
  }

 private:
  void op(const char* what, bool backward, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
    const bool separate = !s_.context.profile().fused_elementwise;
    s_.builder.op(name_ + "." + what,
                  program::ChannelScale{backward, s_.context.batch, in_.channels, in_.pixels(), separate},
                  s_.context.compute, reads, writes);
  }
  LayerSequence body_;
  BufferId factors_ = -1;
};

class ResidualPart : public PartBase {
 public:
  ResidualPart(const UnitScope& scope, const Layer& layer, Extent in, const std::string& name, int site)
      : PartBase(scope, layer, in, name),
        body_(s_, layer.body, in, name + ".body", 16 * site + 1),
        shortcut_(s_, layer.shortcut, in, name + ".shortcut", 16 * site + 2),
        fused_(s_.context.fuses_batch_norm() && model::ends_in_batch_norm(layer)) {}
  void declare_parameters() override {
    body_.declare_parameters();
    shortcut_.declare_parameters();
  }
  bool has_parameters() const override { return body_.has_parameters() || shortcut_.has_parameters(); }
  Kept kept(bool) const override { return {body_.keeps_input() || shortcut_.keeps_input(), false}; }
  bool restores() const override { return true; }
  void declare(BufferId x, BufferId y, bool output_stays) override {
    PartBase::declare(x, y, output_stays);
    body_out_ = body_.declare(x, name_ + ".body.out", Lifetime::slot);
    shortcut_out_ = shortcut_.declare(x, name_ + ".shortcut.out", Lifetime::slot);
  }
  void forward(BufferId y, bool again) override {
    body_.forward(again, y >= 0);
    shortcut_.forward(again, y >= 0);
    if (y < 0) return;
    add("add", body_out_, shortcut_out_, y, out_);
    if (fused_) s_.builder.takes_no_kernel({bytes(out_), 0});  // the branch that the other's kernel has not at hand
  }
  BufferId backward(BufferId gradient, bool input_gradient) override {
    const BufferId through_body = body_.backward(gradient, input_gradient);
    const BufferId through_shortcut = shortcut_.empty() ? gradient : shortcut_.backward(gradient, input_gradient);
    if (!input_gradient) return -1;
    const BufferId dx = gradient_of_input();
    add("add_gradient", through_body, through_shortcut, dx, in_);
    if (fused_) s_.builder.takes_no_kernel({bytes(in_), 0});  // what the first has written
    return dx;
  }

 private:
  std::int64_t bytes(Extent extent) const { return s_.context.batch * extent.elements() * size_of(s_.context.compute); }
  void add(const char* what, BufferId a, BufferId b, BufferId y, Extent extent) {
    s_.builder.op(name_ + "." + what, Elementwise{ElementwiseFn::add, s_.context.batch * extent.elements()},
                  s_.context.compute, {{a}, {b}}, {{y}});
  }
  LayerSequence body_, shortcut_;
  BufferId body_out_ = -1, shortcut_out_ = -1;
  bool fused_;
};

}  // namespace

std::unique_ptr<LayerPart> make_layer_part(const UnitScope& scope, const Layer& layer, Extent in,
                                           const std::string& name, int site) {
  switch (layer.kind) {
    case LayerKind::linear:
      return std::make_unique<LinearPart>(scope, layer, in, name);
    case LayerKind::convolution:
      return std::make_unique<ConvolutionPart>(scope, layer, in, name);
    case LayerKind::batch_norm:
      return make_batch_norm(scope, in, name);
    case LayerKind::layer_norm:
      return make_layer_norm(scope, in, name);
    case LayerKind::relu:
    case LayerKind::gelu:
    case LayerKind::tanh:
    case LayerKind::sigmoid:
    case LayerKind::silu:
      return std::make_unique<ActivationPart>(scope, layer, in, name);
    case LayerKind::dropout:
      return std::make_unique<DropoutPart>(scope, layer, in, name, site);
    case LayerKind::max_pool:
      return std::make_unique<MaxPoolPart>(scope, layer, in, name);
    case LayerKind::average_pool:
      if (in.rows()) return make_mean_of_vectors(scope, in, name);
      return std::make_unique<AveragePoolPart>(scope, layer, in, name);
    case LayerKind::residual:
      return std::make_unique<ResidualPart>(scope, layer, in, name, site);
    case LayerKind::scale:
      return std::make_unique<ScalePart>(scope, layer, in, name, site);
    case LayerKind::attention:
      return make_list_attention(scope, layer, in, name);
    case LayerKind::embedding:
      return make_list_embedding(scope, layer, in, name);
    case LayerKind::tables:
      return make_tables(scope, layer, in, name);
    case LayerKind::pairs:
      return make_pairs(scope, in, name);
    case LayerKind::flatten:
      return make_flatten(scope, in, name);
  }
  REHEARSE_CHECK(false, "unknown layer kind {}", static_cast<int>(layer.kind));
}

}  // namespace rehearse::lower
