// The first unit of a decoder: token and position embedding; of a decoder beside an encoder too, and of the tokens that
// a module of multi-token prediction reads. The tables are split by rows over the tensor group (vocabulary parallel,
// Shoeybi et al. 2019): looking up gives partial sums that are reduced.
#include <cmath>

#include "sim/lower/model/load.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/prediction.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {
namespace {

using program::Elementwise;
using program::ElementwiseFn;

class EmbeddingUnit : public Unit {
 public:
  // `memory`: of a decoder beside an encoder; `module`, from 1, of multi-token prediction, which reads the tokens so
  // many places on. Both have the table of tokens that is `shared` where this stage has it.
  explicit EmbeddingUnit(UnitScope scope, CrossMemory* memory = nullptr, ParamId shared = -1, int module = 0,
                         ParamId positions = -1)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        tp_(scope.context, scope.builder, scope.parameters),
        norm_(scope.context, scope.builder, scope.parameters, "embedding.norm"),
        memory_(memory),
        module_(module),
        prefix_(memory ? "decoder." : prediction_prefix(module)),
        name_(prefix_ + "embedding"),
        table_(shared),
        positions_(positions) {}

  ParamId table() const override { return table_; }
  ParamId positions() const override { return positions_; }
  // The norm's gain; a table's rows are not.
  bool backward_reads_parameters() const override { return m_.embedding_norm; }

  void declare_parameters() override {
    if (table_ >= 0) {
      s_.parameters.add_use(table_);
    } else {
      ParamSpec spec{"embedding.word.weight", {c_.vocab, m_.hidden}, 0, program::Init::Kind::normal, 0.02};
      spec.tied = m_.table_on_two_stages() || m_.has_decoder();
      spec.copy = memory_ != nullptr || module_ > 0;
      spec.table = true;
      table_ = s_.parameters.add(s_.number, std::move(spec));
    }
    declare_positions();
    if (m_.embedding_norm) norm_.declare_parameters(s_.number);
  }

  void declare_positions() {
    if (m_.position != model::Position::learned) return;
    if (positions_ >= 0) return s_.parameters.add_use(positions_);
    ParamSpec positions{
        "embedding.position.weight", {m_.learned_positions(), m_.hidden}, -1, program::Init::Kind::normal, 0.02};
    positions.table = true;
    positions.held_by = c_.groups.positions;
    positions.tied = positions.held_by >= 0;
    positions.copy = memory_ != nullptr;
    positions_ = s_.parameters.add(s_.number, std::move(positions));
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    if (memory_) memory_->value = input;
    const std::vector<std::int64_t> row{c_.local_tokens, m_.hidden};
    ids_ = s_.builder.activation(prefix_ + "tokens", DType::i32, {c_.tokens}, Lifetime::micro_batch);
    if (m_.dropout > 0) mask_ = s_.builder.activation(name_ + ".mask", DType::u8, row, Lifetime::micro_batch);
    if (m_.embedding_norm) {
      before_norm_ = s_.builder.activation(name_ + ".sum", c_.residual, row, Lifetime::micro_batch);
      const BufferId normal =
          norm_.declare_buffers(before_norm_, Lifetime::micro_batch, mask_ >= 0 ? Lifetime::slot : output, c_.residual);
      if (mask_ < 0) return y_ = normal;
    }
    return y_ = s_.builder.activation(name_ + ".out", c_.residual, row, output);
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    load_input(s_, prefix_ + "tokens.load", memory_ ? program::InputKind::decoder_tokens : program::InputKind::tokens,
               DType::i32, ids_, !memory_ && module_ == 0, module_);
    const bool partial = c_.groups.tensor >= 0;
    // Where the sum of tables goes, which a norm's backward reads.
    const BufferId sum = m_.embedding_norm ? before_norm_ : mask_ >= 0 ? -1 : y_;
    const bool more = positions_ >= 0 || sum < 0;
    BufferId x =
        more || c_.sequence_parallel ? b.workspace(name_ + ".words", c_.residual, {c_.tokens, m_.hidden}) : sum;
    b.op(name_ + ".word.forward", program::Embedding{false, partial, c_.tokens, s_.parameters.rows(table_), m_.hidden},
         c_.compute, {{ids_}, {s_.parameters.value(table_)}}, {{x}});
    x = tp_.reduce_partial(name_ + ".word", x, m_.hidden, positions_ < 0 && m_.embedding_norm ? sum : -1);
    if (m_.scaled_embeddings) scale(name_ + ".scale", x, x);
    if (positions_ >= 0) {
      const BufferId out = sum >= 0 ? sum : b.workspace(name_ + ".sum", c_.residual, {c_.local_tokens, m_.hidden});
      Elementwise add{ElementwiseFn::add_position, c_.local_tokens * m_.hidden, m_.hidden};
      add.rows_split_over_tensor = c_.sequence_parallel;
      add.documents = c_.document > 0;
      b.op(name_ + ".position.forward", add, c_.compute, {{x}, {s_.parameters.value(positions_)}}, {{out}});
      x = out;
    }
    if (m_.embedding_norm) {
      norm_.forward();
      x = norm_.out();
    }
    if (mask_ >= 0) {
      Elementwise drop{ElementwiseFn::dropout, c_.local_tokens * m_.hidden, m_.hidden};
      drop.dropout = m_.dropout;
      drop.site = memory_       ? static_cast<int>(4 * m_.encoder_layers)
                  : module_ > 0 ? static_cast<int>(4 * m_.blocks()) + module_
                                : 0;
      drop.rows_split_over_tensor = c_.sequence_parallel;
      b.op(name_ + ".dropout.forward", drop, c_.compute, {{x}}, {{y_}, {mask_}});
    } else if (x != y_) {
      b.op(name_ + ".copy", Elementwise{ElementwiseFn::copy, c_.local_tokens * m_.hidden}, c_.compute, {{x}}, {{y_}});
    }
  }

  BufferId backward(BufferId gradient, bool) override {
    if (!s_.parameters.trains(table_)) return -1;
    RoleBuilder& b = s_.builder;
    if (mask_ >= 0) {
      const BufferId out = b.workspace(b.here("d_" + name_ + ".dropout"), c_.residual, {c_.local_tokens, m_.hidden});
      Elementwise drop{ElementwiseFn::dropout_backward, c_.local_tokens * m_.hidden};
      drop.dropout = m_.dropout;
      b.op(name_ + ".dropout.backward", drop, c_.compute, {{gradient}, {mask_}}, {{out}});
      gradient = out;
    }
    if (m_.embedding_norm) gradient = norm_.backward(gradient, -1);
    if (positions_ >= 0) {
      const BufferId target = s_.parameters.accumulated_gradient(positions_);
      Elementwise add{ElementwiseFn::position_grad, c_.local_tokens * m_.hidden, m_.hidden};
      add.rows_split_over_tensor = c_.sequence_parallel;
      add.documents = c_.document > 0;
      b.op(name_ + ".position.backward", add, c_.compute, {{gradient}, {target}}, {{target}});
      s_.parameters.gradient_done(positions_);
    }
    if (m_.scaled_embeddings) {
      const BufferId scaled = b.workspace(b.here("d_" + name_ + ".scaled"), c_.residual, {c_.local_tokens, m_.hidden});
      scale(name_ + ".scale.backward", gradient, scaled);
      gradient = scaled;
    }
    gradient = tp_.gather_sequence("d_" + name_, gradient, m_.hidden);
    const BufferId target = s_.parameters.accumulated_gradient(table_);
    b.op(name_ + ".word.backward",
         program::Embedding{true, c_.groups.tensor >= 0, c_.tokens, s_.parameters.rows(table_), m_.hidden}, c_.compute,
         {{gradient}, {ids_}, {target}}, {{target}});
    s_.parameters.gradient_done(table_);
    return memory_ ? memory_->gradient : -1;
  }

 private:
  // By sqrt(hidden) (Vaswani et al. 2017, arXiv 1706.03762, section 3.4).
  void scale(const std::string& name, BufferId from, BufferId to) {
    Elementwise op{ElementwiseFn::scale, c_.local_tokens * m_.hidden};
    op.value = std::sqrt(static_cast<double>(m_.hidden));
    s_.builder.op(name, op, c_.residual, {{from}}, {{to}});
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel tp_;
  NormLayer norm_;
  CrossMemory* memory_;
  int module_;
  std::string prefix_, name_;
  ParamId table_, positions_;
  BufferId ids_ = -1, before_norm_ = -1, mask_ = -1, y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_embedding(UnitScope scope) {
  return std::make_unique<EmbeddingUnit>(scope);
}

std::unique_ptr<Unit> make_decoder_embedding(UnitScope scope, ParamId table, ParamId positions, CrossMemory& memory) {
  return std::make_unique<EmbeddingUnit>(scope, &memory, table, 0, positions);
}

std::unique_ptr<Unit> make_embedding_ahead(UnitScope scope, int module, ParamId table) {
  return std::make_unique<EmbeddingUnit>(scope, nullptr, table, module);
}

}  // namespace rehearse::lower
