// What comes before the block of a module of multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2,
// equation 21): y = W [N1(e); N2(h)], h the hidden state before, e the embedding of the token k places on. The
// embedding comes first, as in Megatron-Core (core/transformer/multi_token_prediction.py) and in the weights that
// DeepSeek published. W is on every rank of a tensor group whole, each has its own tokens with sequence parallelism;
// Megatron-Core splits its rows and gathers what they give. It multiplies in 16 bits in fp8 plans too.
#include "sim/lower/model/prediction.h"

#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/norm.h"

namespace rehearse::lower {
namespace {

using program::StridedCopy;

// Of a product whose weight every rank of the tensor group has, of the rows that it has between layers.
Context with_whole_weights(const Context& context) {
  Context c = context;
  c.tokens = c.local_tokens;
  c.groups.tensor = -1, c.tensor = 1;
  c.sequence_parallel = false;
  return c;
}

class PredictionEntry : public Unit {
 public:
  PredictionEntry(UnitScope scope, int module, ParamId table, Predictions& predictions)
      : s_(scope),
        c_(scope.context),
        h_(scope.context.model().hidden),
        whole_(with_whole_weights(scope.context)),
        place_(static_cast<std::size_t>(module) - 1),
        name_(prediction_prefix(module)),
        predictions_(predictions),
        embedding_(make_embedding_ahead(scope, module, table)),
        embedding_norm_(scope.context, scope.builder, scope.parameters, name_ + "embedding_norm"),
        hidden_norm_(scope.context, scope.builder, scope.parameters, name_ + "hidden_norm"),
        product_(whole_, scope.builder, scope.parameters) {}

  ParamId table() const override { return embedding_->table(); }

  void declare_parameters() override {
    embedding_->declare_parameters();
    embedding_norm_.declare_parameters(s_.number);
    hidden_norm_.declare_parameters(s_.number);
    weight_ = add_weight(s_, name_ + "projection.weight", {h_, 2 * h_}, -1, kWeightScale);
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    const Lifetime kept = Lifetime::micro_batch;
    predictions_.hidden.push_back(input);
    predictions_.gradients.push_back(-1);
    embedding_norm_.declare_buffers(embedding_->declare_buffers(-1, kept), kept, Lifetime::slot, c_.compute);
    hidden_norm_.declare_buffers(input, kept, Lifetime::slot, c_.compute);
    rows_ = s_.builder.activation(name_ + "rows", c_.compute, {c_.local_tokens, 2 * h_}, kept);
    return y_ = s_.builder.activation(name_ + "projection.out", c_.residual, {c_.local_tokens, h_}, output);
  }

  void forward(bool) override {
    RoleBuilder& b = s_.builder;
    embedding_->forward(false);
    embedding_norm_.forward();
    hidden_norm_.forward();
    copy_half("embedding", embedding_norm_.out(), rows_, 0, false);
    copy_half("hidden", hidden_norm_.out(), rows_, h_, false);
    BufferId out = y_;
    if (c_.residual != c_.compute)
      out = b.workspace(b.here(name_ + "projection.narrow"), c_.compute, {c_.local_tokens, h_});
    product_.product(name_ + "projection.forward", rows_, weight_, -1, out, h_, 2 * h_);
    if (out != y_) cast(name_ + "projection.cast", out, y_);
  }

  BufferId backward(BufferId gradient, bool) override {
    RoleBuilder& b = s_.builder;
    if (b.buffer(gradient).dtype != c_.compute) {
      const BufferId narrow =
          b.workspace(b.here("d_" + name_ + "projection.narrow"), c_.compute, {c_.local_tokens, h_});
      cast(name_ + "projection.backward_cast", gradient, narrow);
      gradient = narrow;
    }
    const BufferId d_rows = product_.column_backward(name_ + "projection", gradient, rows_, weight_, -1, h_, 2 * h_);
    const BufferId d_embedding = half_of(d_rows, "embedding", 0), d_hidden = half_of(d_rows, "hidden", h_);
    embedding_->backward(embedding_norm_.backward(d_embedding, -1), true);
    return hidden_norm_.backward(d_hidden, predictions_.gradients[place_]);
  }

 private:
  // One of the two rows of a token, at column `first` of those beside one another: into its place, or out of it.
  void copy_half(const std::string& what, BufferId from, BufferId to, std::int64_t first, bool apart) {
    const program::Strides inside{2 * h_, 0, first}, alone{h_, 0, 0};
    s_.builder.op((apart ? "d_" : "") + name_ + what + ".row",
                  StridedCopy{c_.local_tokens, 1, h_, apart ? inside : alone, apart ? alone : inside}, c_.compute,
                  {{from}}, {{to}});
  }
  BufferId half_of(BufferId d_rows, const std::string& what, std::int64_t first) {
    const BufferId half =
        s_.builder.workspace(s_.builder.here("d_" + name_ + what + ".row"), c_.compute, {c_.local_tokens, h_});
    copy_half(what, d_rows, half, first, true);
    return half;
  }
  void cast(const std::string& name, BufferId from, BufferId to) {
    const program::Buffer& b = s_.builder.buffer(to);
    s_.builder.op(name, program::Elementwise{program::ElementwiseFn::cast, b.elements()}, b.dtype, {{from}}, {{to}});
  }

  UnitScope s_;
  const Context& c_;
  std::int64_t h_;
  Context whole_;
  std::size_t place_;  // in Predictions
  std::string name_;
  Predictions& predictions_;
  std::unique_ptr<Unit> embedding_;
  NormLayer embedding_norm_, hidden_norm_;
  TensorParallel product_;
  ParamId weight_ = -1;
  BufferId rows_ = -1, y_ = -1;  // rows_: what the product reads, both norms' rows beside one another
};

}  // namespace

std::unique_ptr<Unit> make_prediction_entry(UnitScope scope, int module, ParamId table, Predictions& predictions) {
  return std::make_unique<PredictionEntry>(scope, module, table, predictions);
}

}  // namespace rehearse::lower
