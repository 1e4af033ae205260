// The last unit of a decoder: the final norm, the vocabulary product and the loss (vocabulary_loss.h). T5's with a tied
// table scales what the product reads by 1 / sqrt(hidden) (google-research/mesh transformer.py, Unitransformer: logits
// of shared embeddings; Hugging Face's modeling_t5.py).
#include <cmath>

#include "sim/lower/model/load.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/model/vocabulary_loss.h"
#include "sim/lower/parallel/tensor.h"
#include "sim/program/work.h"

namespace rehearse::lower {
namespace {

using program::Elementwise;
using program::ElementwiseFn;

class Head : public Unit {
 public:
  Head(UnitScope scope, ParamId table)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        tp_(scope.context, scope.builder, scope.parameters, false, Lifetime::micro_batch),
        norm_(scope.context, scope.builder, scope.parameters, "final_norm"),
        loss_(scope.context, scope.builder, scope.parameters, "", columns(), m_.vocab, c_.loss_weight(),
              m_.logit_softcap),
        table_(table) {}

  void declare_parameters() override {
    norm_.declare_parameters(s_.number);
    if (table_ >= 0) return s_.parameters.add_use(table_);
    const std::string name = m_.tied_embeddings ? "embedding.word.weight" : "head.weight";
    ParamSpec table{name, {c_.vocab, m_.hidden}, 0, program::Init::Kind::normal, 0.02, m_.tied_embeddings};
    table.copy = m_.tied_embeddings;
    table_ = s_.parameters.add(s_.number, std::move(table));
  }

  BufferId declare_buffers(BufferId input, Lifetime /*output*/) override {
    in_ = norm_.declare_buffers(input, Lifetime::micro_batch);
    if (scales())
      in_ = s_.builder.activation("head.scaled", c_.compute, {c_.local_tokens, m_.hidden}, Lifetime::micro_batch);
    loss_.declare_buffers();
    sum_ = s_.builder.add_loss();
    return -1;
  }

  // The loss is summed over the step's micro-batches.
  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{sum_}});
  }

  void forward(bool) override {
    load_input(s_, "targets.load", program::InputKind::targets, DType::i32, loss_.targets(), false);
    norm_.forward();
    if (scales()) scale("head.scale", norm_.out(), in_);
    const BufferId in = tp_.product_input("final_norm", in_, m_.hidden);
    loss_.forward(
        sum_, [&](BufferId product) { tp_.product("head.forward", in, table_, -1, product, columns(), m_.hidden); });
  }

  void end_micro_batch() override {
    for (int i = 0; i < c_.profile().loss_metrics; ++i) emit_metric(i);
  }

  BufferId backward(BufferId, bool) override {
    BufferId d_norm = tp_.column_backward("head", loss_.backward(), in_, table_, -1, columns(), m_.hidden);
    if (scales()) {
      const BufferId scaled = d_norm;
      d_norm = s_.builder.workspace(s_.builder.here("d_head.scaled"), c_.compute, {c_.local_tokens, m_.hidden});
      scale("head.scale.backward", scaled, d_norm);
    }
    return norm_.backward(d_norm, -1);
  }

 private:
  std::int64_t columns() const { return c_.vocab / c_.tensor; }
  bool scales() const { return m_.has_decoder() && m_.tied_embeddings; }
  void scale(const std::string& name, BufferId from, BufferId to) {
    Elementwise op{ElementwiseFn::scale, c_.local_tokens * m_.hidden};
    op.value = 1 / std::sqrt(static_cast<double>(m_.hidden));
    s_.builder.op(name, op, c_.compute, {{from}}, {{to}});
  }

  // torch.nn.functional.cross_entropy of the logits without its gradient: cast to fp32, log_softmax (a copy that reads
  // long rows again), and rows picked, which are few.
  void emit_metric(int index) {
    RoleBuilder& b = s_.builder;
    const std::string name = "metric" + std::to_string(index);
    const std::int64_t elements = c_.tokens * columns();
    const BufferId wide = b.workspace(b.here(name + ".logits"), DType::f32, {c_.tokens, columns()});
    const BufferId result = b.workspace(b.here(name + ".log_softmax"), DType::f32, {c_.tokens, columns()});
    b.op(name + ".cast", Elementwise{ElementwiseFn::cast, elements}, DType::f32, {{loss_.logits()}}, {{wide}});
    b.op(name + ".log_softmax", Elementwise{ElementwiseFn::copy, elements}, DType::f32, {{wide}}, {{result}});
    b.takes_kernels(1, {(program::log_softmax_reads(columns() * 4) - 1) * elements * 4, 0});
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel tp_;
  NormLayer norm_;
  VocabularyLoss loss_;
  ParamId table_;
  BufferId sum_ = -1, in_ = -1;  // in_: what the product reads
};

}  // namespace

std::unique_ptr<Unit> make_head(UnitScope scope, ParamId table_on_this_stage) {
  return std::make_unique<Head>(scope, table_on_this_stage);
}

}  // namespace rehearse::lower
