// See list_norms.h.
#include "sim/lower/model/list_norms.h"

namespace rehearse::lower {
namespace {

using program::BatchNorm;
using program::BatchNormPart;

class BatchNormLayer : public LayerPart {
 public:
  BatchNormLayer(const UnitScope& scope, model::Extent in, std::string name)
      : s_(scope), in_(in), name_(std::move(name)) {}

  bool has_parameters() const override { return true; }
  void declare_parameters() override {
    gamma_ = s_.parameters.add(s_.number, {name_ + ".weight", {in_.channels}, -1, program::Init::Kind::ones, 0});
    beta_ = s_.parameters.add(s_.number, {name_ + ".bias", {in_.channels}, -1, program::Init::Kind::zeros, 0});
  }
  Kept kept(bool) const override { return {true, false}; }
  void declare(BufferId x, BufferId, bool) override {
    x_ = x;
    sums_ = s_.builder.activation(name_ + ".sums", DType::f32, {2, in_.channels}, Lifetime::micro_batch);
  }

  void forward(BufferId y, bool again) override {
    const BufferId gamma = s_.parameters.value(gamma_), beta = s_.parameters.value(beta_);
    if (!again && !synchronised())
      return op("forward", BatchNormPart::forward, {{x_}, {gamma}, {beta}}, {{y}, {sums_}});
    if (!again) {
      op("sums", BatchNormPart::sums, {{x_}}, {{sums_}});
      all_reduce("sums", sums_);
    }
    op("normalise", BatchNormPart::normalise, {{x_}, {sums_}, {gamma}, {beta}}, {{y}});
  }

  BufferId backward(BufferId gradient, bool) override {
    RoleBuilder& b = s_.builder;
    const BufferId gamma = s_.parameters.value(gamma_);
    const BufferId dx = b.workspace(b.here("d_" + name_ + ".input"), s_.context.compute, b.buffer(x_).shape);
    const BufferId d_sums = b.workspace(b.here("d_" + name_ + ".sums"), DType::f32, {2, in_.channels});
    const BufferId dg = s_.parameters.accumulated_gradient(gamma_), db = s_.parameters.accumulated_gradient(beta_);
    if (synchronised()) {
      op("backward_sums", BatchNormPart::backward_sums, {{gradient}, {x_}, {sums_}}, {{d_sums}});
      op("backward_weight", BatchNormPart::backward_weight, {{d_sums}, {dg}, {db}}, {{dg}, {db}});
      all_reduce("backward_sums", d_sums);
      op("backward_input", BatchNormPart::backward_input, {{gradient}, {x_}, {sums_}, {gamma}, {d_sums}}, {{dx}});
    } else {
      op("backward", BatchNormPart::backward, {{gradient}, {x_}, {sums_}, {gamma}, {dg}, {db}},
         {{dx}, {dg}, {db}, {d_sums}});
    }
    s_.parameters.gradient_done(gamma_);
    s_.parameters.gradient_done(beta_);
    return dx;
  }

 private:
  bool synchronised() const { return s_.context.groups.batch_norm >= 0; }
  // 64 channels at a time where they lie together (C_ELEMENTS_PER_CTA, see cost::read_once); channel by channel one.
  std::int64_t kept_channels() const {
    const plan::FrameworkProfile& profile = s_.context.profile();
    if (s_.context.channels_first()) return profile.keeps_norm_channels_first ? 1 : 0;
    return profile.keeps_norm_channels_last && s_.context.compute != DType::f32 ? 64 : 0;
  }
  void op(const char* what, BatchNormPart part, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
    const Context& c = s_.context;
    const std::int64_t count = c.batch * in_.pixels() * (synchronised() ? c.plan().data : 1);
    BatchNorm norm{part, c.batch, in_.channels, in_.pixels(), count};
    if (part == BatchNormPart::forward || part == BatchNormPart::backward) norm.kept_channels = kept_channels();
    s_.builder.op(name_ + "." + what, norm, c.compute, reads, writes);
  }
  // On the stream of the gradients' reductions: one communicator has both, unless it is given another.
  void all_reduce(const char* what, BufferId sums) {
    s_.builder.op(
        name_ + "." + what + ".all_reduce",
        program::Collective{program::CollectiveKind::all_reduce, s_.context.groups.batch_norm, 2 * in_.channels},
        DType::f32, {{sums}}, {{sums}}, program::StreamKind::data);
  }

  const UnitScope s_;
  model::Extent in_;
  std::string name_;
  ParamId gamma_ = -1, beta_ = -1;
  BufferId x_ = -1, sums_ = -1;
};

class LayerNormLayer : public LayerPart {
 public:
  LayerNormLayer(const UnitScope& scope, model::Extent in, std::string name)
      : s_(scope), in_(in), name_(std::move(name)) {}

  bool has_parameters() const override { return true; }
  void declare_parameters() override {
    gamma_ = s_.parameters.add(s_.number, {name_ + ".weight", {in_.channels}, -1, program::Init::Kind::ones, 0});
    beta_ = s_.parameters.add(s_.number, {name_ + ".bias", {in_.channels}, -1, program::Init::Kind::zeros, 0});
  }
  Kept kept(bool) const override { return {true, false}; }
  bool restores() const override { return true; }
  void declare(BufferId x, BufferId, bool) override {
    x_ = x;
    stats_ = s_.builder.activation(name_ + ".stats", DType::f32, {rows(), 2}, s_.restored());
  }
  void forward(BufferId y, bool) override {
    if (y < 0) y = s_.builder.workspace(s_.builder.here(name_ + ".out_again"), s_.context.compute, shape());
    op("forward", program::NormPart::forward, {{x_}, {s_.parameters.value(gamma_)}, {s_.parameters.value(beta_)}},
       {{y}, {stats_}});
  }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId dx = s_.builder.workspace(s_.builder.here("d_" + name_ + ".input"), s_.context.compute, shape());
    const BufferId dg = s_.parameters.accumulated_gradient(gamma_), db = s_.parameters.accumulated_gradient(beta_);
    op("backward_input", program::NormPart::backward_input, {{gradient}, {x_}, {stats_}, {s_.parameters.value(gamma_)}},
       {{dx}});
    op("backward_weight", program::NormPart::backward_weight, {{gradient}, {x_}, {stats_}, {dg}, {db}}, {{dg}, {db}});
    s_.parameters.gradient_done(gamma_);
    s_.parameters.gradient_done(beta_);
    return dx;
  }

 private:
  std::vector<std::int64_t> shape() const { return batch_shape(s_.context, in_); }
  // Examples, or their tokens.
  std::int64_t rows() const { return s_.context.batch * (in_.rows() ? in_.vectors : 1); }
  void op(const char* what, program::NormPart part, const std::vector<Operand>& reads,
          const std::vector<Operand>& writes) {
    program::Norm norm{part, false, false, rows(), in_.channels};
    s_.builder.op(name_ + "." + what, norm, s_.context.compute, reads, writes);
  }

  const UnitScope s_;
  model::Extent in_;
  std::string name_;
  ParamId gamma_ = -1, beta_ = -1;
  BufferId x_ = -1, stats_ = -1;
};

}  // namespace

std::unique_ptr<LayerPart> make_layer_norm(const UnitScope& scope, model::Extent in, const std::string& name) {
  return std::make_unique<LayerNormLayer>(scope, in, name);
}

std::unique_ptr<LayerPart> make_batch_norm(const UnitScope& scope, model::Extent in, const std::string& name) {
  return std::make_unique<BatchNormLayer>(scope, in, name);
}

}  // namespace rehearse::lower
