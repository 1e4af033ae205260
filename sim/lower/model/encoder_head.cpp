// The last unit of an encoder (bert): the losses of the masked tokens and of the next sentence (Devlin et al. 2019,
// arXiv 1810.04805, section 3.1; google-research/bert run_pretraining.py). A predicted token's row goes through a
// product, GELU and a norm, then through the embedding's table, with a bias, to logits. The first token's row goes
// through the pooler (a product and tanh) to two classes. With model.max_predictions the rows of the masked tokens are
// gathered first, and nothing else is computed of the others. Over the tensor group the table and its bias are split as
// in head.cpp; all else is whole on every rank, as in Megatron-LM (bert_model.py, BertLMHead and Pooler).
#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/casts.h"
#include "sim/lower/model/load.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/model/vocabulary_loss.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {
namespace {

using program::Activation;
using program::ActivationFn;
using program::Elementwise;
using program::ElementwiseFn;

// The context of a product of other rows than a micro-batch's tokens; `whole`: of a weight that every rank of the
// tensor group has.
Context with_rows(const Context& context, std::int64_t rows, bool whole) {
  Context c = context;
  c.tokens = c.local_tokens = rows;
  if (whole) c.groups.tensor = -1, c.tensor = 1;
  return c;
}

class EncoderHead : public Unit {
 public:
  EncoderHead(UnitScope scope, ParamId table)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        predicted_(with_rows(c_, c_.batch * m_.predicted(c_.seq), false)),
        transformed_(with_rows(c_, predicted_.tokens, true)),
        pooled_(with_rows(c_, c_.batch, true)),
        decoder_(predicted_, scope.builder, scope.parameters),
        transform_(transformed_, scope.builder, scope.parameters),
        pooler_(pooled_, scope.builder, scope.parameters),
        norm_(NormLayer::within_branch(transformed_, scope.builder, scope.parameters, "head.norm", m_.hidden)),
        casts_(scope.context, scope.builder),
        loss_(predicted_, scope.builder, scope.parameters, "", columns(), m_.vocab,
              1 / static_cast<double>(c_.scenario.training.global_batch * m_.predicted(c_.seq))),
        next_loss_(pooled_, scope.builder, scope.parameters, "next.", 2, 2,
                   1 / static_cast<double>(c_.scenario.training.global_batch)),
        table_(table) {}

  void declare_parameters() override {
    const std::int64_t h = m_.hidden;
    transform_w_ = add_weight(s_, "head.transform.weight", {h, h}, -1, kWeightScale);
    transform_b_ = add_bias(s_, "head.transform.bias", {h}, -1);
    norm_.declare_parameters(s_.number);
    if (table_ >= 0) {
      s_.parameters.add_use(table_);
    } else {
      ParamSpec table{"embedding.word.weight", {c_.vocab, h}, 0, program::Init::Kind::normal, kWeightScale, true};
      table.copy = true;
      table_ = s_.parameters.add(s_.number, std::move(table));
    }
    decoder_b_ = add_bias(s_, "head.bias", {c_.vocab}, 0);
    pooler_w_ = add_weight(s_, "pooler.weight", {h, h}, -1, kWeightScale);
    pooler_b_ = add_bias(s_, "pooler.bias", {h}, -1);
    next_w_ = add_weight(s_, "next.weight", {2, h}, -1, kWeightScale);
    next_b_ = add_bias(s_, "next.bias", {2}, -1);
  }

  BufferId declare_buffers(BufferId input, Lifetime /*output*/) override {
    RoleBuilder& b = s_.builder;
    const Lifetime kept = Lifetime::micro_batch;
    const std::vector<std::int64_t> rows{predicted_.tokens, m_.hidden}, firsts{c_.batch, m_.hidden};
    input_ = rows_ = input;
    if (gathers()) {
      places_ = b.activation("predictions", DType::i32, {predicted_.tokens}, kept);
      rows_ = b.activation("head.rows", c_.residual, rows, kept);
    }
    narrow_rows_ = casts_.declare_narrow("head.transform.in", rows_, kept);
    product_ = b.activation("head.transform.product", c_.compute, rows, kept);
    activation_ = b.activation("head.transform.activation", c_.compute, rows, kept);
    norm_.declare_buffers(activation_, kept);
    loss_.declare_buffers();
    first_ = b.view("pooler.first", input, 0, firsts);  // rows are [sequence, micro_batch]
    narrow_first_ = casts_.declare_narrow("pooler.in", first_, kept);
    pooler_product_ = b.activation("pooler.product", c_.compute, firsts, kept);
    pooler_out_ = b.activation("pooler.out", c_.compute, firsts, kept);
    next_loss_.declare_buffers();
    sum_ = b.add_loss();
    return -1;
  }

  // The sum of both losses, over the step's micro-batches.
  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{sum_}});
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    const std::int64_t h = m_.hidden;
    load_input(s_, "targets.load", program::InputKind::targets, DType::i32, loss_.targets(), false);
    load_input(s_, "labels.load", program::InputKind::labels, DType::i32, next_loss_.targets(), false);
    if (gathers()) {
      load_input(s_, "predictions.load", program::InputKind::predictions, DType::i32, places_, false);
      b.op("head.gather", program::Embedding{false, false, predicted_.tokens, c_.tokens, h}, c_.compute,
           {{places_}, {input_}}, {{rows_}});
    }
    casts_.narrow(rows_, narrow_rows_);
    transform_.product("head.transform.forward", narrow_rows_, transform_w_, transform_b_, product_, h, h);
    b.op("head.transform.gelu", activation(ActivationFn::gelu, false, predicted_.tokens), c_.compute, {{product_}},
         {{activation_}});
    norm_.forward();
    loss_.forward(sum_, [&](BufferId product) {
      decoder_.product("head.forward", norm_.out(), table_, decoder_b_, product, columns(), h);
    });
    casts_.narrow(first_, narrow_first_);
    pooler_.product("pooler.forward", narrow_first_, pooler_w_, pooler_b_, pooler_product_, h, h);
    b.op("pooler.tanh", activation(ActivationFn::tanh, false, c_.batch), c_.compute, {{pooler_product_}},
         {{pooler_out_}});
    next_loss_.forward(
        sum_, [&](BufferId product) { pooler_.product("next.forward", pooler_out_, next_w_, next_b_, product, 2, h); });
  }

  BufferId backward(BufferId, bool) override {
    RoleBuilder& b = s_.builder;
    const std::int64_t h = m_.hidden;
    const BufferId d_norm =
        decoder_.column_backward("head", loss_.backward(), norm_.out(), table_, decoder_b_, columns(), h);
    const BufferId d_activation = norm_.backward(d_norm, -1);
    const BufferId d_product = b.workspace(b.here("d_head.transform"), c_.compute, {predicted_.tokens, h});
    b.op("head.transform.gelu.backward", activation(ActivationFn::gelu, true, predicted_.tokens), c_.compute,
         {{d_activation}, {product_}}, {{d_product}});
    const BufferId d_rows =
        transform_.column_backward("head.transform", d_product, narrow_rows_, transform_w_, transform_b_, h, h);
    const BufferId d_input = scattered(casts_.wide("d_head.rows.wide", d_rows));
    const BufferId d_out = pooler_.column_backward("next", next_loss_.backward(), pooler_out_, next_w_, next_b_, 2, h);
    const BufferId d_pooled = b.workspace(b.here("d_pooler.product"), c_.compute, {c_.batch, h});
    b.op("pooler.tanh.backward", activation(ActivationFn::tanh, true, c_.batch), c_.compute, {{d_out}, {pooler_out_}},
         {{d_pooled}});
    const BufferId d_first = pooler_.column_backward("pooler", d_pooled, narrow_first_, pooler_w_, pooler_b_, h, h);
    const BufferId target = b.view(b.here("d_pooler.first"), d_input, 0, {c_.batch, h});
    b.op("pooler.add_gradient", Elementwise{ElementwiseFn::accumulate, c_.batch * h}, c_.residual,
         {{d_first}, {target}}, {{target}});
    return d_input;
  }

 private:
  bool gathers() const { return m_.max_predictions > 0; }
  std::int64_t columns() const { return c_.vocab / c_.tensor; }
  Activation activation(ActivationFn fn, bool backward, std::int64_t rows) const {
    return {fn, backward, rows, m_.hidden};
  }
  // The gradients of gathered rows where they came from, zero elsewhere.
  BufferId scattered(BufferId d_rows) {
    if (!gathers()) return d_rows;
    RoleBuilder& b = s_.builder;
    const BufferId whole = b.workspace(b.here("d_head.in"), c_.residual, {c_.tokens, m_.hidden});
    b.op("head.zero_gradient", Elementwise{ElementwiseFn::fill, c_.tokens * m_.hidden}, c_.residual, {}, {{whole}});
    b.op("head.scatter", program::Embedding{true, false, predicted_.tokens, c_.tokens, m_.hidden}, c_.compute,
         {{d_rows}, {places_}, {whole}}, {{whole}});
    return whole;
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  Context predicted_, transformed_, pooled_;
  TensorParallel decoder_, transform_, pooler_;
  NormLayer norm_;
  Casts casts_;
  VocabularyLoss loss_, next_loss_;
  ParamId table_, transform_w_ = -1, transform_b_ = -1, decoder_b_ = -1, pooler_w_ = -1, pooler_b_ = -1, next_w_ = -1,
                  next_b_ = -1;
  BufferId input_ = -1, places_ = -1, rows_ = -1, narrow_rows_ = -1, narrow_first_ = -1, product_ = -1,
           activation_ = -1, first_ = -1, pooler_product_ = -1, pooler_out_ = -1, sum_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_encoder_head(UnitScope scope, ParamId table_on_this_stage) {
  return std::make_unique<EncoderHead>(scope, table_on_this_stage);
}

}  // namespace rehearse::lower
