// The first and the last unit of a vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929, section 3.1): a
// product of each patch, the class token before them, learned positions; and the final norm of all rows, of which the
// class token's goes through one product to the classes. Between them are gpt's blocks without a mask. Over the tensor
// group both units are whole on every rank, as in Megatron-LM (megatron/legacy/model/vision/vit_backbone.py: its patch
// product and head are torch.nn.Linear).
#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/load.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/model/vocabulary_loss.h"

namespace rehearse::lower {
namespace {

using program::Elementwise;
using program::ElementwiseFn;

// Of products whose weight every rank of the tensor group has.
Context whole_rows(const Context& context, std::int64_t rows) {
  Context c = context;
  c.tokens = c.local_tokens = rows;
  c.groups.tensor = -1, c.tensor = 1;
  return c;
}

class PatchEmbedding : public Unit {
 public:
  explicit PatchEmbedding(UnitScope scope)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        rows_(whole_rows(c_, c_.batch * m_.patches())),
        product_(rows_, scope.builder, scope.parameters) {}

  void declare_parameters() override {
    const std::int64_t h = m_.hidden, w = m_.patch_width();
    weight_ = add_weight(s_, "patches.weight", {h, w}, -1, 1 / std::sqrt(static_cast<double>(w)));
    bias_ = add_bias(s_, "patches.bias", {h}, -1, true);
    class_token_ = add_bias(s_, "class_token", {h}, -1, true);
    positions_ = add_weight(s_, "positions.weight", {m_.patches() + 1, h}, -1, kWeightScale);
  }

  BufferId declare_buffers(BufferId, Lifetime output) override {
    RoleBuilder& b = s_.builder;
    patches_ = b.activation("patches", c_.compute, {rows_.tokens, m_.patch_width()}, Lifetime::micro_batch);
    if (m_.dropout > 0)
      mask_ = b.activation("embedding.mask", DType::u8, {c_.tokens, m_.hidden}, Lifetime::micro_batch);
    return y_ = b.activation("embedding.out", c_.residual, {c_.tokens, m_.hidden}, output);
  }

  // Rows are [sequence, micro_batch]: the class token's come first, then the patches'.
  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    const std::int64_t h = m_.hidden, all = c_.tokens * h;
    load_input(s_, "patches.load", program::InputKind::patches, c_.compute, patches_);
    const BufferId rows = b.workspace("embedding.rows", c_.compute, {c_.tokens, h});
    const BufferId first = b.view("embedding.class_rows", rows, 0, {c_.batch, h});
    const BufferId others = b.view("embedding.patch_rows", rows, c_.batch * h, {rows_.tokens, h});
    product_.product("patches.forward", patches_, weight_, bias_, others, h, m_.patch_width());
    const BufferId zeros = b.workspace("embedding.zeros", c_.compute, {c_.batch, h});
    b.op("class_token.zero", Elementwise{ElementwiseFn::fill, c_.batch * h}, c_.compute, {}, {{zeros}});
    s_.parameters.cast_weight(class_token_);
    Elementwise expand{ElementwiseFn::bias_dropout_add, c_.batch * h, h};
    expand.bias = true;
    b.op("class_token.expand", expand, c_.compute, {{zeros}, {s_.parameters.value(class_token_)}, {zeros}}, {{first}});
    s_.parameters.cast_weight(positions_);
    const BufferId sum = mask_ >= 0 ? b.workspace("embedding.sum", c_.residual, {c_.tokens, h}) : y_;
    b.op("positions.forward", Elementwise{ElementwiseFn::add_position, all, h}, c_.compute,
         {{rows}, {s_.parameters.value(positions_)}}, {{sum}});
    if (mask_ < 0) return;
    Elementwise drop{ElementwiseFn::dropout, all, h};
    drop.dropout = m_.dropout;
    b.op("embedding.dropout.forward", drop, c_.compute, {{sum}}, {{y_}, {mask_}});
  }

  BufferId backward(BufferId gradient, bool) override {
    RoleBuilder& b = s_.builder;
    const std::int64_t h = m_.hidden, all = c_.tokens * h;
    if (mask_ >= 0) {
      const BufferId out = b.workspace(b.here("d_embedding.dropout"), c_.residual, {c_.tokens, h});
      Elementwise drop{ElementwiseFn::dropout_backward, all};
      drop.dropout = m_.dropout;
      b.op("embedding.dropout.backward", drop, c_.compute, {{gradient}, {mask_}}, {{out}});
      gradient = out;
    }
    const BufferId table = s_.parameters.accumulated_gradient(positions_);
    b.op("positions.backward", Elementwise{ElementwiseFn::position_grad, all, h}, c_.compute, {{gradient}, {table}},
         {{table}});
    s_.parameters.gradient_done(positions_);
    if (b.buffer(gradient).dtype != c_.compute) {
      const BufferId narrow = b.workspace(b.here("d_embedding.narrow"), c_.compute, {c_.tokens, h});
      b.op("d_embedding.cast", Elementwise{ElementwiseFn::cast, all}, c_.compute, {{gradient}}, {{narrow}});
      gradient = narrow;
    }
    const BufferId first = b.view(b.here("d_embedding.class_rows"), gradient, 0, {c_.batch, h});
    const BufferId others = b.view(b.here("d_embedding.patch_rows"), gradient, c_.batch * h, {rows_.tokens, h});
    const BufferId token = s_.parameters.accumulated_gradient(class_token_);
    b.op("class_token.backward", Elementwise{ElementwiseFn::bias_grad, c_.batch * h, h}, c_.compute, {{first}, {token}},
         {{token}});
    s_.parameters.gradient_done(class_token_);
    weight_gradients(others);
    return -1;
  }
  bool backward_reads_parameters() const override { return false; }

 private:
  // Of the patches' product, whose input asks for none.
  void weight_gradients(BufferId gradient) {
    RoleBuilder& b = s_.builder;
    const std::int64_t h = m_.hidden;
    const bool fused = c_.plan().fuses_bias_gradients();
    if (!fused) {
      const BufferId db = s_.parameters.accumulated_gradient(bias_);
      b.op("patches.bias_grad", Elementwise{ElementwiseFn::bias_grad, rows_.tokens * h, h}, c_.compute,
           {{gradient}, {db}}, {{db}});
      s_.parameters.gradient_done(bias_);
    }
    b.weight_part([&] {
      program::Gemm gemm{h, m_.patch_width(), rows_.tokens, 1};
      gemm.transpose_a = true;
      s_.parameters.weight_gradient(weight_, "patches.backward_weight", gemm, gradient, patches_, fused ? bias_ : -1);
      s_.parameters.gradient_done(weight_);
      if (fused) s_.parameters.gradient_done(bias_);
    });
  }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  Context rows_;
  TensorParallel product_;
  ParamId weight_ = -1, bias_ = -1, class_token_ = -1, positions_ = -1;
  BufferId patches_ = -1, mask_ = -1, y_ = -1;
};

class ClassHead : public Unit {
 public:
  explicit ClassHead(UnitScope scope)
      : s_(scope),
        c_(scope.context),
        m_(scope.context.model()),
        rows_(whole_rows(c_, c_.batch)),
        product_(rows_, scope.builder, scope.parameters),
        norm_(scope.context, scope.builder, scope.parameters, "final_norm"),
        loss_(rows_, scope.builder, scope.parameters, "", m_.classes, m_.classes,
              1 / static_cast<double>(c_.scenario.training.global_batch)) {}

  void declare_parameters() override {
    norm_.declare_parameters(s_.number);
    weight_ = add_weight(s_, "head.weight", {m_.classes, m_.hidden}, -1, kWeightScale);
    bias_ = add_bias(s_, "head.bias", {m_.classes}, -1, true);
  }

  BufferId declare_buffers(BufferId input, Lifetime) override {
    norm_.declare_buffers(input, Lifetime::micro_batch);
    first_ = s_.builder.view("head.class_rows", norm_.out(), 0, {c_.batch, m_.hidden});
    loss_.declare_buffers();
    sum_ = s_.builder.add_loss();
    return -1;
  }

  void begin_step() override {
    s_.builder.op("loss.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{sum_}});
  }

  void forward(bool) override {
    load_input(s_, "labels.load", program::InputKind::labels, DType::i32, loss_.targets(), false);
    norm_.forward();
    loss_.forward(sum_, [&](BufferId product) {
      product_.product("head.forward", first_, weight_, bias_, product, m_.classes, m_.hidden);
    });
  }

  BufferId backward(BufferId, bool) override {
    RoleBuilder& b = s_.builder;
    const BufferId d_first =
        product_.column_backward("head", loss_.backward(), first_, weight_, bias_, m_.classes, m_.hidden);
    const BufferId d_norm = b.workspace(b.here("d_final_norm.out"), c_.compute, {c_.tokens, m_.hidden});
    b.op("head.zero_gradient", Elementwise{ElementwiseFn::fill, c_.tokens * m_.hidden}, c_.compute, {}, {{d_norm}});
    const BufferId target = b.view(b.here("d_head.class_rows"), d_norm, 0, {c_.batch, m_.hidden});
    b.op("head.class_gradient", Elementwise{ElementwiseFn::copy, c_.batch * m_.hidden}, c_.compute, {{d_first}},
         {{target}});
    return norm_.backward(d_norm, -1);
  }

 private:
  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  Context rows_;
  TensorParallel product_;
  NormLayer norm_;
  VocabularyLoss loss_;
  ParamId weight_ = -1, bias_ = -1;
  BufferId first_ = -1, sum_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_patch_embedding(UnitScope scope) {
  return std::make_unique<PatchEmbedding>(scope);
}

std::unique_ptr<Unit> make_class_head(UnitScope scope) {
  return std::make_unique<ClassHead>(scope);
}

}  // namespace rehearse::lower
