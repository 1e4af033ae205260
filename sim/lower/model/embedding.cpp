// The first unit of a decoder: token and position embedding. The tables are split by rows over the tensor group
// (vocabulary parallel, Shoeybi et al. 2019): looking up gives partial sums that are reduced.
#include "sim/lower/model/load.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {
namespace {

using program::Elementwise;
using program::ElementwiseFn;

class EmbeddingUnit : public Unit {
 public:
  explicit EmbeddingUnit(UnitScope scope)
      : s_(scope), c_(scope.context), m_(scope.context.model()), tp_(scope.context, scope.builder, scope.parameters) {}

  ParamId table() const override { return table_; }
  bool backward_reads_parameters() const override { return false; }

  void declare_parameters() override {
    const auto add = [&](const std::string& name, std::int64_t rows, int tensor_dim, bool tied) {
      ParamSpec spec{name, {rows, m_.hidden}, tensor_dim, program::Init::Kind::normal, 0.02, tied};
      spec.table = true;
      return s_.parameters.add(s_.number, std::move(spec));
    };
    table_ = add("embedding.word.weight", c_.vocab, 0, m_.tied_embeddings);
    if (m_.position == model::Position::learned)
      positions_ = add("embedding.position.weight", m_.learned_positions(), -1, false);
  }

  BufferId declare_buffers(BufferId /*input*/, Lifetime output) override {
    const std::vector<std::int64_t> row{c_.local_tokens, m_.hidden};
    ids_ = s_.builder.activation("tokens", DType::i32, {c_.tokens}, Lifetime::micro_batch);
    if (m_.dropout > 0) mask_ = s_.builder.activation("embedding.mask", DType::u8, row, Lifetime::micro_batch);
    return y_ = s_.builder.activation("embedding.out", c_.residual, row, output);
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    load_input(s_, "tokens.load", program::InputKind::tokens, DType::i32, ids_);
    const bool more = positions_ >= 0 || mask_ >= 0;
    const bool partial = c_.groups.tensor >= 0;
    BufferId x =
        more || c_.sequence_parallel ? b.workspace("embedding.words", c_.residual, {c_.tokens, m_.hidden}) : y_;
    b.op("embedding.word.forward", program::Embedding{false, partial, c_.tokens, s_.parameters.rows(table_), m_.hidden},
         c_.compute, {{ids_}, {s_.parameters.value(table_)}}, {{x}});
    x = tp_.reduce_partial("embedding.word", x, m_.hidden);
    if (positions_ >= 0) {
      const BufferId out = mask_ >= 0 ? b.workspace("embedding.sum", c_.residual, {c_.local_tokens, m_.hidden}) : y_;
      Elementwise add{ElementwiseFn::add_position, c_.local_tokens * m_.hidden, m_.hidden};
      add.rows_split_over_tensor = c_.sequence_parallel;
      add.documents = c_.document > 0;
      b.op("embedding.position.forward", add, c_.compute, {{x}, {s_.parameters.value(positions_)}}, {{out}});
      x = out;
    }
    if (mask_ >= 0) {
      Elementwise drop{ElementwiseFn::dropout, c_.local_tokens * m_.hidden, m_.hidden};
      drop.dropout = m_.dropout;
      drop.rows_split_over_tensor = c_.sequence_parallel;
      b.op("embedding.dropout.forward", drop, c_.compute, {{x}}, {{y_}, {mask_}});
    } else if (x != y_) {
      b.op("embedding.copy", Elementwise{ElementwiseFn::copy, c_.local_tokens * m_.hidden}, c_.compute, {{x}}, {{y_}});
    }
  }

  BufferId backward(BufferId gradient, bool) override {
    if (!s_.parameters.trains(table_)) return -1;
    RoleBuilder& b = s_.builder;
    if (mask_ >= 0) {
      const BufferId out = b.workspace(b.here("d_embedding.dropout"), c_.residual, {c_.local_tokens, m_.hidden});
      Elementwise drop{ElementwiseFn::dropout_backward, c_.local_tokens * m_.hidden};
      drop.dropout = m_.dropout;
      b.op("embedding.dropout.backward", drop, c_.compute, {{gradient}, {mask_}}, {{out}});
      gradient = out;
    }
    if (positions_ >= 0) {
      const BufferId target = s_.parameters.accumulated_gradient(positions_);
      Elementwise add{ElementwiseFn::position_grad, c_.local_tokens * m_.hidden, m_.hidden};
      add.rows_split_over_tensor = c_.sequence_parallel;
      add.documents = c_.document > 0;
      b.op("embedding.position.backward", add, c_.compute, {{gradient}, {target}}, {{target}});
      s_.parameters.gradient_done(positions_);
    }
    gradient = tp_.gather_sequence("d_embedding", gradient, m_.hidden);
    const BufferId target = s_.parameters.accumulated_gradient(table_);
    b.op("embedding.word.backward",
         program::Embedding{true, c_.groups.tensor >= 0, c_.tokens, s_.parameters.rows(table_), m_.hidden}, c_.compute,
         {{gradient}, {ids_}, {target}}, {{target}});
    s_.parameters.gradient_done(table_);
    return -1;
  }

 private:
  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel tp_;
  ParamId table_ = -1, positions_ = -1;
  BufferId ids_ = -1, mask_ = -1, y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_embedding(UnitScope scope) {
  return std::make_unique<EmbeddingUnit>(scope);
}

}  // namespace rehearse::lower
