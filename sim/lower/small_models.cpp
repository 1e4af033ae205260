// Units of cnn and mlp models: a convolution with ReLU and max pooling, a linear layer with ReLU and dropout, the
// input, and the losses of classification and regression. Data parallelism, ZeRO and pipelines apply to them as to any
// unit; tensor parallelism does not.
#include <cmath>

#include "sim/lower/unit.h"

namespace rehearse::lower {
namespace {

using model::Family;
using program::Activation;
using program::ActivationFn;
using program::Conv2d;
using program::ConvPart;
using program::CrossEntropy;
using program::CrossEntropyPart;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;
using program::MeanSquaredError;
using program::Pool2d;
using program::StreamKind;

class InputUnit : public Unit {
 public:
  explicit InputUnit(UnitScope scope) : s_(scope) {}
  BufferId declare_buffers(BufferId, Lifetime output) override {
    const model::Model& m = s_.context.model();
    const std::int64_t n = s_.context.batch;
    std::vector<std::int64_t> shape{n, m.image_channels, m.image_size, m.image_size};
    if (m.family == Family::mlp) shape = {n, m.widths.front()};
    return y_ = s_.builder.activation("input", s_.context.compute, shape, output);
  }
  void forward(bool) override {
    const auto kind =
        s_.context.model().family == Family::cnn ? program::InputKind::images : program::InputKind::features;
    s_.builder.op("input.load", program::Input{kind, s_.builder.buffer(y_).elements()}, s_.context.compute, {}, {{y_}},
                  StreamKind::copy);
  }
  BufferId backward(BufferId, bool) override { return -1; }

 private:
  UnitScope s_;
  BufferId y_ = -1;
};

// Image size and channels in front of convolution `index`.
struct Image {
  std::int64_t channels, size;
};
Image image_before(const model::Model& m, int index) {
  Image image{m.image_channels, m.image_size};
  for (int i = 0; i < index; ++i) {
    image.channels = m.convolutions[static_cast<std::size_t>(i)].channels;
    image.size /= m.convolutions[static_cast<std::size_t>(i)].pool;
  }
  return image;
}

class Convolution : public Unit {
 public:
  Convolution(UnitScope scope, int index)
      : s_(scope),
        name_("conv" + std::to_string(index)),
        layer_(scope.context.model().convolutions[static_cast<std::size_t>(index)]),
        in_(image_before(scope.context.model(), index)) {}

  void declare_parameters() override {
    const double fan_in = static_cast<double>(in_.channels * layer_.kernel * layer_.kernel);
    weight_ = s_.parameters.add(s_.number, {name_ + ".weight",
                                            {layer_.channels, in_.channels, layer_.kernel, layer_.kernel},
                                            -1,
                                            program::Init::Kind::uniform,
                                            1 / std::sqrt(fan_in)});
    bias_ = s_.parameters.add(
        s_.number, {name_ + ".bias", {layer_.channels}, -1, program::Init::Kind::uniform, 1 / std::sqrt(fan_in)});
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    const Context& c = s_.context;
    const Lifetime saved = c.plan().recompute == plan::Recompute::full ? Lifetime::slot : Lifetime::micro_batch;
    x_ = input;
    const std::vector<std::int64_t> full{c.batch, layer_.channels, in_.size, in_.size};
    const std::int64_t out = in_.size / layer_.pool;
    conv_ = s_.builder.activation(name_ + ".product", c.compute, full, saved);
    const std::vector<std::int64_t> pooled{c.batch, layer_.channels, out, out};
    if (layer_.pool == 1) return relu_ = y_ = s_.builder.activation(name_ + ".out", c.compute, full, output);
    argmax_ = s_.builder.activation(name_ + ".argmax", DType::i32, pooled, saved);
    return y_ = s_.builder.activation(name_ + ".out", c.compute, pooled, output);
  }

  void forward(bool again) override {
    const Context& c = s_.context;
    RoleBuilder& b = s_.builder;
    b.op(name_ + ".forward", conv(ConvPart::forward), c.compute,
         {{x_}, {s_.parameters.value(weight_)}, {s_.parameters.value(bias_)}}, {{conv_}});
    BufferId relu = relu_;
    if (pooled() || again) relu = b.workspace(b.here(name_ + ".relu"), c.compute, b.buffer(conv_).shape);
    b.op(name_ + ".relu.forward", relu_op(false), c.compute, {{conv_}}, {{relu}});
    if (!pooled()) return;
    BufferId y = y_;
    if (again) y = b.workspace(b.here(name_ + ".out_again"), c.compute, b.buffer(y_).shape);
    b.op(name_ + ".pool.forward", pool(false), c.compute, {{relu}}, {{y}, {argmax_}});
  }

  BufferId backward(BufferId gradient, bool input_gradient) override {
    const Context& c = s_.context;
    RoleBuilder& b = s_.builder;
    if (pooled()) {
      const BufferId d = b.workspace(b.here("d_" + name_ + ".pool"), c.compute, b.buffer(conv_).shape);
      b.op(name_ + ".pool.backward", pool(true), c.compute, {{gradient}, {argmax_}}, {{d}});
      gradient = d;
    }
    const BufferId d_conv = b.workspace(b.here("d_" + name_ + ".product"), c.compute, b.buffer(conv_).shape);
    b.op(name_ + ".relu.backward", relu_op(true), c.compute, {{gradient}, {conv_}}, {{d_conv}});
    BufferId dx = -1;
    if (input_gradient) {
      dx = b.workspace(b.here("d_" + name_ + ".input"), c.compute, b.buffer(x_).shape);
      b.op(name_ + ".backward_input", conv(ConvPart::backward_input), c.compute,
           {{d_conv}, {s_.parameters.value(weight_)}}, {{dx}});
    }
    b.weight_part([&] {
      const BufferId dw = s_.parameters.accumulated_gradient(weight_), db = s_.parameters.accumulated_gradient(bias_);
      b.op(name_ + ".backward_weight", conv(ConvPart::backward_weight), c.compute, {{d_conv}, {x_}, {dw}, {db}},
           {{dw}, {db}});
      s_.parameters.gradient_done(weight_);
      s_.parameters.gradient_done(bias_);
    });
    return dx;
  }
  bool recomputable() const override { return true; }

 private:
  bool pooled() const { return layer_.pool > 1; }
  Conv2d conv(ConvPart part) const {
    return {part, s_.context.batch, in_.channels, layer_.channels, in_.size, in_.size, layer_.kernel,
            1,    layer_.kernel / 2};
  }
  Activation relu_op(bool backward) const {
    return {ActivationFn::relu, backward, s_.context.batch, layer_.channels * in_.size * in_.size};
  }
  Pool2d pool(bool backward) const {
    return {backward, s_.context.batch, layer_.channels, in_.size, in_.size, layer_.pool};
  }

  UnitScope s_;
  std::string name_;
  model::ConvLayer layer_;
  Image in_;
  ParamId weight_ = -1, bias_ = -1;
  BufferId x_ = -1, conv_ = -1, relu_ = -1, argmax_ = -1, y_ = -1;
};

class Linear : public Unit {
 public:
  Linear(UnitScope scope, int index) : s_(scope), name_("linear" + std::to_string(index)), index_(index) {
    const model::Model& m = scope.context.model();
    const auto widths =
        m.family == Family::cnn ? static_cast<int>(m.widths.size()) : static_cast<int>(m.widths.size()) - 1;
    const auto at = [&](int i) { return m.widths[static_cast<std::size_t>(i)]; };
    if (m.family == Family::mlp) {
      in_ = at(index);
      out_ = at(index + 1);
    } else {
      const Image image = image_before(m, static_cast<int>(m.convolutions.size()));
      in_ = index == 0 ? image.channels * image.size * image.size : at(index - 1);
      out_ = at(index);
    }
    last_ = index == widths - 1;
  }

  void declare_parameters() override {
    const double width = 1 / std::sqrt(static_cast<double>(in_));
    weight_ = s_.parameters.add(s_.number, {name_ + ".weight", {out_, in_}, -1, program::Init::Kind::uniform, width});
    bias_ = s_.parameters.add(s_.number, {name_ + ".bias", {out_}, -1, program::Init::Kind::uniform, width});
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    const Context& c = s_.context;
    const Lifetime saved = c.plan().recompute == plan::Recompute::full ? Lifetime::slot : Lifetime::micro_batch;
    x_ = input;
    const std::vector<std::int64_t> shape{c.batch, out_};
    if (!last_) product_ = s_.builder.activation(name_ + ".product", c.compute, shape, saved);
    if (dropped()) mask_ = s_.builder.activation(name_ + ".mask", DType::u8, shape, saved);
    y_ = s_.builder.activation(name_ + ".out", c.compute, shape, output);
    if (last_) product_ = y_;
    return y_;
  }

  void forward(bool again) override {
    const Context& c = s_.context;
    RoleBuilder& b = s_.builder;
    if (again && last_) return;
    Gemm gemm{c.batch, out_, in_, 1};
    gemm.transpose_b = gemm.bias = true;
    b.op(name_ + ".forward", gemm, c.compute, {{x_}, {s_.parameters.value(weight_)}, {s_.parameters.value(bias_)}},
         {{product_}});
    if (last_ || (again && !dropped())) return;
    const auto out = [&](bool final_op, const std::string& what) {
      return final_op && !again ? y_ : b.workspace(b.here(name_ + what), c.compute, b.buffer(y_).shape);
    };
    const BufferId relu = out(!dropped(), ".relu");
    b.op(name_ + ".relu.forward", Activation{ActivationFn::relu, false, c.batch, out_}, c.compute, {{product_}},
         {{relu}});
    if (!dropped()) return;
    Elementwise drop{ElementwiseFn::dropout, c.batch * out_, out_};
    drop.dropout = c.model().dropout;
    drop.site = index_;
    b.op(name_ + ".dropout.forward", drop, c.compute, {{relu}}, {{out(true, ".out_again")}, {mask_}});
  }

  BufferId backward(BufferId gradient, bool input_gradient) override {
    const Context& c = s_.context;
    RoleBuilder& b = s_.builder;
    const auto next = [&](const std::string& what) {
      return b.workspace(b.here("d_" + name_ + what), c.compute, {c.batch, out_});
    };
    if (dropped()) {
      const BufferId d = next(".dropout");
      Elementwise drop{ElementwiseFn::dropout_backward, c.batch * out_};
      drop.dropout = c.model().dropout;
      b.op(name_ + ".dropout.backward", drop, c.compute, {{gradient}, {mask_}}, {{d}});
      gradient = d;
    }
    if (!last_) {
      const BufferId d = next(".relu");
      b.op(name_ + ".relu.backward", Activation{ActivationFn::relu, true, c.batch, out_}, c.compute,
           {{gradient}, {product_}}, {{d}});
      gradient = d;
    }
    const BufferId db = s_.parameters.accumulated_gradient(bias_);
    b.op(name_ + ".bias_grad", Elementwise{ElementwiseFn::bias_grad, c.batch * out_, out_}, c.compute,
         {{gradient}, {db}}, {{db}});
    s_.parameters.gradient_done(bias_);
    BufferId dx = -1;
    if (input_gradient) {
      dx = b.workspace(b.here("d_" + name_ + ".input"), c.compute, {c.batch, in_});
      b.op(name_ + ".backward_input", Gemm{c.batch, in_, out_, 1}, c.compute,
           {{gradient}, {s_.parameters.value(weight_)}}, {{dx}});
    }
    b.weight_part([&] {
      Gemm gemm{out_, in_, c.batch, 1};
      gemm.transpose_a = true;
      s_.parameters.weight_gradient(weight_, name_ + ".backward_weight", gemm, gradient, x_);
      s_.parameters.gradient_done(weight_);
    });
    return dx;
  }
  bool recomputable() const override { return true; }

 private:
  bool dropped() const { return !last_ && s_.context.model().dropout > 0; }

  UnitScope s_;
  std::string name_;
  int index_;
  std::int64_t in_ = 0, out_ = 0;
  bool last_ = false;
  ParamId weight_ = -1, bias_ = -1;
  BufferId x_ = -1, product_ = -1, mask_ = -1, y_ = -1;
};

class ClassifierLoss : public Unit {
 public:
  explicit ClassifierLoss(UnitScope scope) : s_(scope) {}
  BufferId declare_buffers(BufferId input, Lifetime) override {
    x_ = input;
    const std::int64_t n = s_.context.batch;
    labels_ = s_.builder.activation("labels", DType::i32, {n}, Lifetime::micro_batch);
    stats_ = s_.builder.activation("loss.stats", DType::f32, {n, 2}, Lifetime::micro_batch);
    loss_ = s_.builder.add_loss();
    return -1;
  }
  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{loss_}});
  }
  void forward(bool) override {
    s_.builder.op("labels.load", program::Input{program::InputKind::labels, s_.context.batch}, DType::i32, {},
                  {{labels_}}, StreamKind::copy);
    s_.builder.op("loss.forward", loss(CrossEntropyPart::fused_forward), DType::f32, {{x_}, {labels_}, {loss_}},
                  {{stats_}, {loss_}});
  }
  BufferId backward(BufferId, bool) override {
    const BufferId dx =
        s_.builder.workspace(s_.builder.here("d_logits"), s_.context.compute, s_.builder.buffer(x_).shape);
    std::vector<Operand> reads{{x_}, {labels_}, {stats_}};
    if (s_.parameters.loss_scale() >= 0) reads.push_back({s_.parameters.loss_scale()});
    s_.builder.op("loss.backward", loss(CrossEntropyPart::backward), DType::f32, reads, {{dx}});
    return dx;
  }

 private:
  CrossEntropy loss(CrossEntropyPart part) const {
    const std::int64_t classes = s_.context.model().widths.back();
    return {part,
            false,
            s_.context.batch,
            classes,
            classes,
            s_.context.loss_weight(),
            part == CrossEntropyPart::backward && s_.context.scales_loss()};
  }
  UnitScope s_;
  BufferId x_ = -1, labels_ = -1, stats_ = -1, loss_ = -1;
};

class RegressionLoss : public Unit {
 public:
  explicit RegressionLoss(UnitScope scope) : s_(scope) {}
  BufferId declare_buffers(BufferId input, Lifetime) override {
    x_ = input;
    values_ = s_.builder.activation("values", DType::f32, s_.builder.buffer(x_).shape, Lifetime::micro_batch);
    loss_ = s_.builder.add_loss();
    return -1;
  }
  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{loss_}});
  }
  void forward(bool) override {
    s_.builder.op("values.load", program::Input{program::InputKind::values, elements()}, DType::f32, {}, {{values_}},
                  StreamKind::copy);
    s_.builder.op("loss.forward", loss(false), DType::f32, {{x_}, {values_}, {loss_}}, {{loss_}});
  }
  BufferId backward(BufferId, bool) override {
    const BufferId dx =
        s_.builder.workspace(s_.builder.here("d_outputs"), s_.context.compute, s_.builder.buffer(x_).shape);
    std::vector<Operand> reads{{x_}, {values_}};
    if (s_.parameters.loss_scale() >= 0) reads.push_back({s_.parameters.loss_scale()});
    s_.builder.op("loss.backward", loss(true), DType::f32, reads, {{dx}});
    return dx;
  }

 private:
  std::int64_t elements() const { return s_.builder.buffer(x_).elements(); }
  MeanSquaredError loss(bool backward) const {
    const double outputs = static_cast<double>(s_.context.model().widths.back());
    return {backward, elements(), s_.context.loss_weight() / outputs, backward && s_.context.scales_loss()};
  }
  UnitScope s_;
  BufferId x_ = -1, values_ = -1, loss_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_input(UnitScope scope) {
  return std::make_unique<InputUnit>(scope);
}
std::unique_ptr<Unit> make_convolution(UnitScope scope, int index) {
  return std::make_unique<Convolution>(scope, index);
}
std::unique_ptr<Unit> make_linear(UnitScope scope, int index) {
  return std::make_unique<Linear>(scope, index);
}
std::unique_ptr<Unit> make_loss(UnitScope scope) {
  if (scope.context.model().loss == model::LossKind::mse) return std::make_unique<RegressionLoss>(scope);
  return std::make_unique<ClassifierLoss>(scope);
}

}  // namespace rehearse::lower
