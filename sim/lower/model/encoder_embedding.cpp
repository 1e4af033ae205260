// The first unit of an encoder (bert): token, position and segment embedding, their sum's LayerNorm and dropout (Devlin
// et al. 2019, arXiv 1810.04805, figure 2; google-research/bert modeling.py, embedding_postprocessor). The tokens'
// table is split by rows over the tensor group, positions and segments are whole on every rank, as Megatron-LM's
// language_model.py has them.
#include "sim/lower/model/load.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {
namespace {

using program::Elementwise;
using program::ElementwiseFn;

class EncoderEmbedding : public Unit {
 public:
  explicit EncoderEmbedding(UnitScope scope)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        tp_(scope.context, scope.builder, scope.parameters),
        norm_(scope.context, scope.builder, scope.parameters, "embedding.norm") {}

  ParamId table() const override { return words_; }

  void declare_parameters() override {
    words_ = add("word", c_.vocab, 0, true);
    positions_ = add("position", m_.learned_positions(), -1, false);
    segments_ = add("segment", m_.segment_kinds, -1, false);
    norm_.declare_parameters(s_.number);
  }

  BufferId declare_buffers(BufferId /*input*/, Lifetime output) override {
    const Lifetime kept = Lifetime::micro_batch;
    ids_ = s_.builder.activation("tokens", DType::i32, {c_.tokens}, kept);
    segment_ids_ = s_.builder.activation("segments", DType::i32, {c_.tokens}, kept);
    sum_ = s_.builder.activation("embedding.sum", c_.residual, row(), kept);
    if (m_.dropout == 0) return norm_.declare_buffers(sum_, kept, output, c_.residual);
    norm_.declare_buffers(sum_, kept, Lifetime::slot, c_.residual);
    mask_ = s_.builder.activation("embedding.mask", DType::u8, row(), kept);
    return y_ = s_.builder.activation("embedding.out", c_.residual, row(), output);
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    load_input(s_, "tokens.load", program::InputKind::tokens, DType::i32, ids_);
    load_input(s_, "segments.load", program::InputKind::segments, DType::i32, segment_ids_, false);
    BufferId x = look_up("word", words_, c_.groups.tensor >= 0, ids_);
    x = tp_.reduce_partial("embedding.word", x, m_.hidden);
    const BufferId placed = b.workspace("embedding.placed", c_.residual, row());
    b.op("embedding.position.forward", Elementwise{ElementwiseFn::add_position, elements(), m_.hidden}, c_.compute,
         {{x}, {s_.parameters.value(positions_)}}, {{placed}});
    const BufferId segment = look_up("segment", segments_, false, segment_ids_);
    b.op("embedding.sum", Elementwise{ElementwiseFn::add, elements()}, c_.compute, {{placed}, {segment}}, {{sum_}});
    norm_.forward();
    if (mask_ < 0) return;
    Elementwise drop{ElementwiseFn::dropout, elements(), m_.hidden};
    drop.dropout = m_.dropout;
    b.op("embedding.dropout.forward", drop, c_.compute, {{norm_.out()}}, {{y_}, {mask_}});
  }

  BufferId backward(BufferId gradient, bool) override {
    RoleBuilder& b = s_.builder;
    if (mask_ >= 0) {
      const BufferId out = b.workspace(b.here("d_embedding.dropout"), c_.residual, row());
      Elementwise drop{ElementwiseFn::dropout_backward, elements()};
      drop.dropout = m_.dropout;
      b.op("embedding.dropout.backward", drop, c_.compute, {{gradient}, {mask_}}, {{out}});
      gradient = out;
    }
    gradient = norm_.backward(gradient, -1);
    add_rows("segment", segments_, false, gradient, segment_ids_);
    const BufferId target = s_.parameters.accumulated_gradient(positions_);
    b.op("embedding.position.backward", Elementwise{ElementwiseFn::position_grad, elements(), m_.hidden}, c_.compute,
         {{gradient}, {target}}, {{target}});
    s_.parameters.gradient_done(positions_);
    add_rows("word", words_, c_.groups.tensor >= 0, gradient, ids_);
    return -1;
  }

 private:
  std::vector<std::int64_t> row() const { return {c_.tokens, m_.hidden}; }
  std::int64_t elements() const { return c_.tokens * m_.hidden; }

  ParamId add(const std::string& what, std::int64_t rows, int tensor_dim, bool tied) {
    ParamSpec spec{
        "embedding." + what + ".weight", {rows, m_.hidden}, tensor_dim, program::Init::Kind::normal, 0.02, tied};
    spec.table = true;
    return s_.parameters.add(s_.number, std::move(spec));
  }
  // Rows of a table; partial where other ranks have the others.
  BufferId look_up(const std::string& what, ParamId table, bool partial, BufferId ids) {
    const BufferId out = s_.builder.workspace("embedding." + what + "s", c_.residual, row());
    s_.builder.op("embedding." + what + ".forward",
                  program::Embedding{false, partial, c_.tokens, s_.parameters.rows(table), m_.hidden}, c_.compute,
                  {{ids}, {s_.parameters.value(table)}}, {{out}});
    return out;
  }
  void add_rows(const std::string& what, ParamId table, bool partial, BufferId gradient, BufferId ids) {
    const BufferId target = s_.parameters.accumulated_gradient(table);
    s_.builder.op("embedding." + what + ".backward",
                  program::Embedding{true, partial, c_.tokens, s_.parameters.rows(table), m_.hidden}, c_.compute,
                  {{gradient}, {ids}, {target}}, {{target}});
    s_.parameters.gradient_done(table);
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  TensorParallel tp_;
  NormLayer norm_;
  ParamId words_ = -1, positions_ = -1, segments_ = -1;
  BufferId ids_ = -1, segment_ids_ = -1, sum_ = -1, mask_ = -1, y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_encoder_embedding(UnitScope scope) {
  return std::make_unique<EncoderEmbedding>(scope);
}

}  // namespace rehearse::lower
