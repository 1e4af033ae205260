// A linear layer of cnn and mlp models, with ReLU and dropout behind all but the last. Not split over a tensor group.
#include <cmath>

#include "sim/lower/model/image.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

using model::Family;
using program::Activation;
using program::ActivationFn;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;

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
      const Image image = image_before(m, static_cast<std::int64_t>(m.convolutions.size()));
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
    const Lifetime saved = s_.restored();
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
    const bool fused = c.plan().fuses_bias_gradients();
    if (!fused) {
      const BufferId db = s_.parameters.accumulated_gradient(bias_);
      b.op(name_ + ".bias_grad", Elementwise{ElementwiseFn::bias_grad, c.batch * out_, out_}, c.compute,
           {{gradient}, {db}}, {{db}});
      s_.parameters.gradient_done(bias_);
    }
    BufferId dx = -1;
    if (input_gradient) {
      dx = b.workspace(b.here("d_" + name_ + ".input"), c.compute, {c.batch, in_});
      b.op(name_ + ".backward_input", Gemm{c.batch, in_, out_, 1}, c.compute,
           {{gradient}, {s_.parameters.value(weight_)}}, {{dx}});
    }
    b.weight_part([&] {
      Gemm gemm{out_, in_, c.batch, 1};
      gemm.transpose_a = true;
      s_.parameters.weight_gradient(weight_, name_ + ".backward_weight", gemm, gradient, x_, fused ? bias_ : -1);
      s_.parameters.gradient_done(weight_);
      if (fused) s_.parameters.gradient_done(bias_);
    });
    return dx;
  }
  bool recomputes() const override { return s_.recomputes(); }

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

}  // namespace

std::unique_ptr<Unit> make_linear(UnitScope scope, int index) {
  return std::make_unique<Linear>(scope, index);
}

}  // namespace rehearse::lower
