// The last unit of cnn and mlp models: the loss of classification (cross entropy), of regression (mean square), or of
// yes and no (binary cross entropy).
#include "sim/lower/model/load.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

using program::BinaryCrossEntropy;
using program::CrossEntropy;
using program::CrossEntropyPart;
using program::Elementwise;
using program::ElementwiseFn;
using program::MeanSquaredError;

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
    load_input(s_, "labels.load", program::InputKind::labels, DType::i32, labels_, false);
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
    const std::int64_t classes = s_.context.model().outputs();
    return {part,
            false,
            s_.context.batch,
            classes,
            classes,
            part == CrossEntropyPart::backward ? s_.context.gradient_weight() : s_.context.loss_weight(),
            part == CrossEntropyPart::backward && s_.context.scales_loss()};
  }
  UnitScope s_;
  BufferId x_ = -1, labels_ = -1, stats_ = -1, loss_ = -1;
};

// Of numbers, by Shape: MeanSquaredError or BinaryCrossEntropy.
template <class Shape>
class ValueLoss : public Unit {
 public:
  explicit ValueLoss(UnitScope scope) : s_(scope) {}
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
    load_input(s_, "values.load", program::InputKind::values, DType::f32, values_, false);
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
  Shape loss(bool backward) const {
    const double outputs = static_cast<double>(s_.context.model().outputs());
    const double weight = backward ? s_.context.gradient_weight() : s_.context.loss_weight();
    return {backward, elements(), weight / outputs, backward && s_.context.scales_loss()};
  }
  UnitScope s_;
  BufferId x_ = -1, values_ = -1, loss_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_loss(UnitScope scope) {
  const model::LossKind kind = scope.context.model().loss;
  if (kind == model::LossKind::mse) return std::make_unique<ValueLoss<MeanSquaredError>>(scope);
  if (kind == model::LossKind::binary_cross_entropy) return std::make_unique<ValueLoss<BinaryCrossEntropy>>(scope);
  return std::make_unique<ClassifierLoss>(scope);
}

}  // namespace rehearse::lower
