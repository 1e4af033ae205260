// The first and the last unit of a transformer: token (and position) embedding, and the final norm with the vocabulary
// product and the loss. Both tables are split by rows over the tensor group (vocabulary parallel, Shoeybi et al. 2019):
// looking up gives partial sums that are reduced; the loss needs the maximum and the sum over the whole vocabulary, two
// small all-reduces instead of gathering the logits.
#include "sim/base/check.h"
#include "sim/lower/norm.h"
#include "sim/lower/tensor_parallel.h"
#include "sim/lower/unit.h"

namespace rehearse::lower {
namespace {

using program::Collective;
using program::CollectiveKind;
using program::CrossEntropy;
using program::CrossEntropyPart;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

class EmbeddingUnit : public Unit {
 public:
  explicit EmbeddingUnit(UnitScope scope)
      : s_(scope), c_(scope.context), m_(scope.context.model()), tp_(scope.context, scope.builder, scope.parameters) {}

  ParamId table() const { return table_; }
  bool backward_reads_parameters() const override { return false; }

  void declare_parameters() override {
    table_ = s_.parameters.add(
        s_.number,
        {"embedding.word.weight", {c_.vocab, m_.hidden}, 0, program::Init::Kind::normal, 0.02, m_.tied_embeddings});
    if (m_.position == model::Position::learned)
      positions_ = s_.parameters.add(
          s_.number, {"embedding.position.weight", {m_.max_seq_len, m_.hidden}, -1, program::Init::Kind::normal, 0.02});
  }

  BufferId declare_buffers(BufferId /*input*/, Lifetime output) override {
    const std::vector<std::int64_t> row{c_.local_tokens, m_.hidden};
    ids_ = s_.builder.activation("tokens", DType::i32, {c_.tokens}, Lifetime::micro_batch);
    if (m_.dropout > 0) mask_ = s_.builder.activation("embedding.mask", DType::u8, row, Lifetime::micro_batch);
    return y_ = s_.builder.activation("embedding.out", c_.compute, row, output);
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    b.op("tokens.load", program::Input{program::InputKind::tokens, c_.tokens}, DType::i32, {}, {{ids_}},
         StreamKind::copy);
    const bool more = positions_ >= 0 || mask_ >= 0;
    const bool partial = c_.groups.tensor >= 0;
    BufferId x = more || c_.sequence_parallel ? b.workspace("embedding.words", c_.compute, {c_.tokens, m_.hidden}) : y_;
    b.op("embedding.word.forward", program::Embedding{false, partial, c_.tokens, s_.parameters.rows(table_), m_.hidden},
         c_.compute, {{ids_}, {s_.parameters.value(table_)}}, {{x}});
    x = tp_.reduce_partial("embedding.word", x, m_.hidden);
    if (positions_ >= 0) {
      const BufferId out = mask_ >= 0 ? b.workspace("embedding.sum", c_.compute, {c_.local_tokens, m_.hidden}) : y_;
      Elementwise add{ElementwiseFn::add_position, c_.local_tokens * m_.hidden, m_.hidden};
      add.rows_split_over_tensor = c_.sequence_parallel;
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
    RoleBuilder& b = s_.builder;
    if (mask_ >= 0) {
      const BufferId out = b.workspace(b.here("d_embedding.dropout"), c_.compute, {c_.local_tokens, m_.hidden});
      Elementwise drop{ElementwiseFn::dropout_backward, c_.local_tokens * m_.hidden};
      drop.dropout = m_.dropout;
      b.op("embedding.dropout.backward", drop, c_.compute, {{gradient}, {mask_}}, {{out}});
      gradient = out;
    }
    if (positions_ >= 0) {
      const BufferId target = s_.parameters.accumulated_gradient(positions_);
      Elementwise add{ElementwiseFn::position_grad, c_.local_tokens * m_.hidden, m_.hidden};
      add.rows_split_over_tensor = c_.sequence_parallel;
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

class Head : public Unit {
 public:
  Head(UnitScope scope, ParamId table)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        tp_(scope.context, scope.builder, scope.parameters),
        norm_(scope.context, scope.builder, scope.parameters, "final_norm"),
        table_(table) {}

  void declare_parameters() override {
    norm_.declare_parameters(s_.number);
    if (table_ >= 0) return s_.parameters.add_use(table_);
    const std::string name = m_.tied_embeddings ? "embedding.word.weight" : "head.weight";
    table_ = s_.parameters.add(s_.number,
                               {name, {c_.vocab, m_.hidden}, 0, program::Init::Kind::normal, 0.02, m_.tied_embeddings});
  }

  BufferId declare_buffers(BufferId input, Lifetime /*output*/) override {
    RoleBuilder& b = s_.builder;
    const Lifetime kept = Lifetime::micro_batch;
    norm_.declare_buffers(input, kept);
    targets_ = b.activation("targets", DType::i32, {c_.tokens}, kept);
    const DType logits = c_.profile().fp32_logits ? DType::f32 : c_.compute;
    logits_ = b.activation("logits", logits, {c_.tokens, columns()}, kept);
    if (parallel()) {
      max_ = b.activation("loss.max", DType::f32, {c_.tokens}, kept);
      sums_ = b.activation("loss.sums", DType::f32, {c_.tokens, 2}, kept);
    } else {
      sums_ = b.activation("loss.stats", DType::f32, {c_.tokens, 2}, kept);
    }
    loss_ = b.add_loss();
    return -1;
  }

  // The loss is summed over the step's micro-batches.
  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{loss_}});
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    b.op("targets.load", program::Input{program::InputKind::targets, c_.tokens}, DType::i32, {}, {{targets_}},
         StreamKind::copy);
    norm_.forward();
    const BufferId in = tp_.gather_sequence("final_norm", norm_.out(), m_.hidden);
    BufferId product = logits_;
    if (b.buffer(logits_).dtype != c_.compute)
      product = b.workspace("logits.product", c_.compute, {c_.tokens, columns()});
    tp_.product("head.forward", in, table_, -1, product, columns(), m_.hidden);
    if (product != logits_)
      b.op("logits.cast", Elementwise{ElementwiseFn::cast, c_.tokens * columns()}, DType::f32, {{product}},
           {{logits_}});
    emit_loss();
  }

  BufferId backward(BufferId, bool) override {
    RoleBuilder& b = s_.builder;
    const BufferId d_logits = b.workspace(b.here("d_logits"), c_.compute, {c_.tokens, columns()});
    std::vector<Operand> reads{{logits_}, {targets_}};
    if (parallel()) reads.push_back({max_});
    reads.push_back({sums_});
    if (s_.parameters.loss_scale() >= 0) reads.push_back({s_.parameters.loss_scale()});
    b.op("loss.backward", loss(CrossEntropyPart::backward), DType::f32, reads, {{d_logits}});
    const BufferId d_norm = tp_.column_backward("head", d_logits, norm_.out(), table_, -1, columns(), m_.hidden);
    return norm_.backward(d_norm, -1);
  }

 private:
  bool parallel() const { return c_.groups.tensor >= 0; }
  std::int64_t columns() const { return c_.vocab / c_.tensor; }

  CrossEntropy loss(CrossEntropyPart part) const {
    return {part,
            parallel(),
            c_.tokens,
            columns(),
            m_.vocab,
            c_.loss_weight(),
            part == CrossEntropyPart::backward && c_.scales_loss()};
  }

  void emit_loss() {
    RoleBuilder& b = s_.builder;
    if (!parallel()) {
      b.op("loss.forward", loss(CrossEntropyPart::fused_forward), DType::f32, {{logits_}, {targets_}, {loss_}},
           {{sums_}, {loss_}});
      return;
    }
    Collective reduce{CollectiveKind::all_reduce, c_.groups.tensor, c_.tokens, program::ReduceOp::max};
    b.op("loss.max", loss(CrossEntropyPart::row_max), DType::f32, {{logits_}}, {{max_}});
    b.op("loss.max.all_reduce", reduce, DType::f32, {{max_}}, {{max_}}, StreamKind::tensor);
    b.op("loss.exp_sum", loss(CrossEntropyPart::exp_sum), DType::f32, {{logits_}, {targets_}, {max_}}, {{sums_}});
    reduce.elements = 2 * c_.tokens;
    reduce.reduce = program::ReduceOp::sum;
    b.op("loss.sums.all_reduce", reduce, DType::f32, {{sums_}}, {{sums_}}, StreamKind::tensor);
    b.op("loss.mean", loss(CrossEntropyPart::loss), DType::f32, {{sums_}, {loss_}}, {{loss_}});
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel tp_;
  NormLayer norm_;
  ParamId table_;
  BufferId targets_ = -1, logits_ = -1, max_ = -1, sums_ = -1, loss_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_embedding(UnitScope scope) {
  return std::make_unique<EmbeddingUnit>(scope);
}

ParamId embedding_table(const Unit& embedding) {
  const auto* unit = dynamic_cast<const EmbeddingUnit*>(&embedding);
  REHEARSE_CHECK(unit != nullptr, "not an embedding");
  return unit->table();
}

std::unique_ptr<Unit> make_head(UnitScope scope, ParamId table_on_this_stage) {
  return std::make_unique<Head>(scope, table_on_this_stage);
}

}  // namespace rehearse::lower
