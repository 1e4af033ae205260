// The last unit of a decoder: the final norm, the vocabulary product and the loss (vocabulary_loss.h). T5's with a tied
// table scales what the product reads by 1 / sqrt(hidden) (google-research/mesh transformer.py, Unitransformer: logits
// of shared embeddings; Hugging Face's modeling_t5.py). With multi-token prediction each module has a norm and a loss
// of its own; the table of the product is one. Their losses are summed apart, as Megatron-Core logs them
// (core/transformer/multi_token_prediction.py, MTPLossLoggingHelper); what is trained on has their weighted mean.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/load.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/prediction.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/model/vocabulary_loss.h"
#include "sim/lower/parallel/tensor.h"
#include "sim/program/work.h"

namespace rehearse::lower {
namespace {

using program::Elementwise;
using program::ElementwiseFn;

// Norm, product and loss of one hidden state: the last layer's (module 0), or that of a module of multi-token
// prediction.
class Output {
 public:
  // share: of its loss in what is trained on.
  Output(const UnitScope& scope, TensorParallel& products, int module, double share)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        tp_(products),
        module_(module),
        prefix_(prediction_prefix(module)),
        norm_(scope.context, scope.builder, scope.parameters, prefix_ + "final_norm"),
        loss_(scope.context, scope.builder, scope.parameters, prefix_, columns(), m_.vocab, scope.context.loss_weight(),
              m_.logit_softcap, share) {}

  void declare_parameters() {
    norm_.declare_parameters(s_.number);
    bias_ = add_bias(s_, "head.bias", {c_.vocab}, 0, m_.has_head_bias());
  }

  void declare_buffers(BufferId hidden) {
    in_ = norm_.declare_buffers(hidden, Lifetime::micro_batch);
    if (scales())
      in_ = s_.builder.activation("head.scaled", c_.compute, {c_.local_tokens, m_.hidden}, Lifetime::micro_batch);
    loss_.declare_buffers();
  }

  void forward(ParamId table, BufferId sum) {
    load_input(s_, prefix_ + "targets.load", program::InputKind::targets, DType::i32, loss_.targets(), false, module_);
    if (s_.parameters.counted() >= 0)
      s_.builder.op("loss.count", program::CountedTargets{false, c_.tokens, c_.tensor}, DType::f32,
                    {{loss_.targets()}, {s_.parameters.counted()}}, {{s_.parameters.counted()}});
    norm_.forward();
    if (scales()) scale("head.scale", norm_.out(), in_);
    const BufferId in = tp_.product_input(prefix_ + "final_norm", in_, m_.hidden);
    loss_.forward(sum, [&](BufferId product) {
      tp_.product(prefix_ + "head.forward", in, table, bias_, product, columns(), m_.hidden);
    });
  }

  BufferId backward(ParamId table) {
    BufferId d_norm = tp_.column_backward(prefix_ + "head", loss_.backward(), in_, table, bias_, columns(), m_.hidden);
    if (scales()) {
      const BufferId scaled = d_norm;
      d_norm = s_.builder.workspace(s_.builder.here("d_head.scaled"), c_.compute, {c_.local_tokens, m_.hidden});
      scale("head.scale.backward", scaled, d_norm);
    }
    return norm_.backward(d_norm, -1);
  }

  BufferId logits() const { return loss_.logits(); }

 private:
  std::int64_t columns() const { return c_.vocab / c_.tensor; }
  bool scales() const { return m_.scales_output(); }
  void scale(const std::string& name, BufferId from, BufferId to) {
    Elementwise op{ElementwiseFn::scale, c_.local_tokens * m_.hidden};
    op.value = 1 / std::sqrt(static_cast<double>(m_.hidden));
    s_.builder.op(name, op, c_.compute, {{from}}, {{to}});
  }

  const UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel& tp_;
  int module_;
  std::string prefix_;
  NormLayer norm_;
  VocabularyLoss loss_;
  ParamId bias_ = -1;
  BufferId in_ = -1;  // what the product reads
};

class Head : public Unit {
 public:
  Head(UnitScope scope, ParamId table, Predictions* predictions = nullptr)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        tp_(scope.context, scope.builder, scope.parameters, false, Lifetime::micro_batch),
        predictions_(predictions),
        table_(table) {
    const double of_module = m_.mtp_loss_weight / static_cast<double>(std::max<std::int64_t>(1, m_.mtp_depth));
    for (int module = 0; module <= m_.mtp_depth; ++module)
      outputs_.push_back(std::make_unique<Output>(s_, tp_, module, module > 0 ? of_module : 1));
  }

  void declare_parameters() override {
    for (auto& output : outputs_) output->declare_parameters();
    std::size_t more = outputs_.size();  // uses of the table
    if (table_ < 0) {
      const std::string name = m_.tied_embeddings ? "embedding.word.weight" : "head.weight";
      ParamSpec table{name, {c_.vocab, m_.hidden}, 0, program::Init::Kind::normal, 0.02, m_.tied_embeddings};
      table.copy = m_.tied_embeddings;
      table_ = s_.parameters.add(s_.number, std::move(table));
      --more;
    }
    for (; more > 0; --more) s_.parameters.add_use(table_);
  }

  BufferId declare_buffers(BufferId input, Lifetime /*output*/) override {
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      outputs_[i]->declare_buffers(i + 1 < outputs_.size() ? predictions_->hidden.at(i) : input);
    const auto parts = static_cast<std::int64_t>(outputs_.size());
    sum_ = s_.builder.add_loss(parts);
    s_.parameters.add_loss(sum_);
    for (std::int64_t part = 0; part < parts; ++part)
      sums_.push_back(
          parts == 1 ? sum_
                     : s_.builder.view(part == 0 ? "model.loss" : prediction_prefix(static_cast<int>(part)) + "loss",
                                       sum_, part, {1}));
    return -1;
  }

  // Each loss is summed over the step's micro-batches.
  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, static_cast<std::int64_t>(outputs_.size())}, DType::f32,
                  {}, {{sum_}});
  }

  // The modules' losses first, as in Megatron-Core (core/models/gpt/gpt_model.py).
  void forward(bool) override {
    for (std::size_t i = 1; i < outputs_.size(); ++i) outputs_[i]->forward(table_, sums_[i]);
    outputs_.front()->forward(table_, sums_.front());
  }

  void end_micro_batch() override {
    for (int i = 0; i < c_.profile().loss_metrics; ++i) emit_metric(i);
  }

  BufferId backward(BufferId, bool) override {
    for (std::size_t i = 0; i + 1 < outputs_.size(); ++i) predictions_->gradients.at(i) = outputs_[i]->backward(table_);
    return outputs_.back()->backward(table_);
  }

 private:
  // torch.nn.functional.cross_entropy of the logits without its gradient: cast to fp32, log_softmax (a copy that reads
  // long rows again), and rows picked, which are few.
  void emit_metric(int index) {
    RoleBuilder& b = s_.builder;
    const std::string name = "metric" + std::to_string(index);
    const std::int64_t columns = c_.vocab / c_.tensor, elements = c_.tokens * columns;
    const BufferId wide = b.workspace(b.here(name + ".logits"), DType::f32, {c_.tokens, columns});
    const BufferId result = b.workspace(b.here(name + ".log_softmax"), DType::f32, {c_.tokens, columns});
    b.op(name + ".cast", Elementwise{ElementwiseFn::cast, elements}, DType::f32, {{outputs_.front()->logits()}},
         {{wide}});
    b.op(name + ".log_softmax", Elementwise{ElementwiseFn::copy, elements}, DType::f32, {{wide}}, {{result}});
    b.takes_kernels(1, {(program::log_softmax_reads(columns * 4) - 1) * elements * 4, 0});
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel tp_;
  Predictions* predictions_;
  std::vector<std::unique_ptr<Output>> outputs_;  // of the model, and of each module
  ParamId table_;
  BufferId sum_ = -1;
  std::vector<BufferId> sums_;  // by output, views of it
};

}  // namespace

std::unique_ptr<Unit> make_head(UnitScope scope, ParamId table_on_this_stage) {
  return std::make_unique<Head>(scope, table_on_this_stage);
}

std::unique_ptr<Unit> make_prediction_head(UnitScope scope, ParamId table_on_this_stage, Predictions& predictions) {
  return std::make_unique<Head>(scope, table_on_this_stage, &predictions);
}

}  // namespace rehearse::lower
