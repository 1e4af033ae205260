// A convolution with ReLU and max pooling. Data parallelism, ZeRO and pipelines apply to it as to any unit; tensor
// parallelism does not.
#include <cmath>

#include "sim/lower/model/image.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

using program::Activation;
using program::ActivationFn;
using program::Conv2d;
using program::ConvPart;
using program::Pool2d;

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
    const Lifetime saved = s_.restored();
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
  bool recomputes() const override { return s_.recomputes(); }

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

}  // namespace

std::unique_ptr<Unit> make_convolution(UnitScope scope, int index) {
  return std::make_unique<Convolution>(scope, index);
}

}  // namespace rehearse::lower
