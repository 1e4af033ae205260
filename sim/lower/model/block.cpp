// One pre-norm transformer block: norm, attention, norm, MLP, each with a residual. gpt: LayerNorm, biases, GELU;
// llama: RMSNorm, rope, SwiGLU, grouped queries or latent attention; moe: the same with experts. What forward keeps for
// backward is, for unfused attention with dropout, the s b h (34 + 5 a s / h) bytes of Korthikanti et al. 2022 (arXiv
// 2205.05198, section 4), plus the norms' statistics. With model.parallel_block the second branch reads what the first
// one does, through the first norm or one of its own; each still has its own product over the tensor group to sum. With
// model.post_norms each branch has a norm behind it too, whose input, the branch's output, is kept besides.
#include "sim/lower/model/attention.h"
#include "sim/lower/model/experts.h"
#include "sim/lower/model/mlp.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/residual.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

std::unique_ptr<FeedForward> feed_forward(const UnitScope& scope, const std::string& block, int layer) {
  const model::Model& m = scope.context.model();
  if (m.has_experts(layer)) return std::make_unique<ExpertBranch>(scope, block, layer);
  return std::make_unique<MlpBranch>(scope, block, "mlp", m.ffn_hidden);
}

// Of a sequence with the tokens before it that are cached.
AttentionBranch::Kind kind_of(const Context& context, int layer) {
  const model::Model& m = context.model();
  const std::int64_t all = context.seq + context.plan().cached_tokens;
  return {m.window(layer, all), m.rotation_base(layer), !m.rotates_by_local_base(layer), !m.rotates_nothing(layer),
          m.chunk(layer, all)};
}

class Block : public Unit {
 public:
  Block(UnitScope scope, int layer)
      : s_(scope),
        c_(scope.context),
        name_("layer" + std::to_string(layer)),
        experts_(scope.context.model().has_experts(layer)),
        norm1_(scope.context, scope.builder, scope.parameters, name_ + ".norm1"),
        attention_(scope, name_, layer * 4 + 1, kind_of(scope.context, layer)),
        post1_(post_norm(scope, ".attention.post_norm")),
        residual1_(scope.context, scope.builder, scope.parameters, name_, "attention", layer * 4 + 2),
        norm2_(scope.context, scope.builder, scope.parameters, name_ + ".norm2"),
        mlp_(feed_forward(scope, name_, layer)),
        post2_(post_norm(scope, ".mlp.post_norm")),
        residual2_(scope.context, scope.builder, scope.parameters, name_, "mlp", layer * 4 + 3) {}

  void declare_parameters() override {
    norm1_.declare_parameters(s_.number);
    attention_.declare_parameters();
    if (post_norms()) post1_.declare_parameters(s_.number);
    if (!one_norm()) norm2_.declare_parameters(s_.number);
    mlp_->declare_parameters();
    if (post_norms()) post2_.declare_parameters(s_.number);
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    const Lifetime saved = s_.restored();
    x_ = input;
    attention_.declare_buffers(declare_norm(norm1_, x_, !c_.model().latent_attention(), adapts_norm1()));
    if (post_norms()) attention_.set_output(declare_post_norm(post1_, "attention"));
    residual1_.declare_mask(saved);
    y1_ = residual1_.declare_sum("attention.residual", parallel() ? Lifetime::slot : saved);
    mlp_->declare_buffers(one_norm() ? norm1_.out()
                                     : declare_norm(norm2_, parallel() ? x_ : y1_, !experts_, adapts_norm2()));
    if (post_norms()) mlp_->set_output(declare_post_norm(post2_, "mlp"));
    if (s_.makes_norms_again()) {
      attention_.input_made_again();
      mlp_->input_made_again();
    }
    residual2_.declare_mask(saved);
    return y_ = residual2_.declare_sum("out", output);
  }

  // Again: stops after what backward reads where the framework does (nothing after the activation without dropout).
  void forward(bool again) override {
    norm1_.forward();
    residual1_.forward(behind(post1_, attention_.forward(again)), attention_.bias(), x_, y1_);
    if (!one_norm()) norm2_.forward();
    mlp_->forward_to_activation(again);
    const bool dropout = c_.model().dropout > 0;
    const bool stops = again && !dropout && c_.profile().recompute_stops_early;
    if (stops && !mlp_->keeps_output() && !post_norms()) return;
    if (stops && experts_ && s_.keeps_some() && !post_norms()) return mlp_->restore_output();
    const BufferId out = behind(post2_, mlp_->forward_from_activation(again));
    if (stops && !mlp_->keeps_output()) return;
    BufferId y = y_;
    if (again)
      y = s_.builder.workspace(s_.builder.here(name_ + ".out_again"), c_.residual, s_.builder.buffer(y_).shape);
    residual2_.forward(out, mlp_->bias(), y1_, y);
  }

  // Without `input_gradient`, where adapters alone are trained, it goes down to the first of them.
  BufferId backward(BufferId output_gradient, bool input_gradient) override {
    s_.builder.set_phase(Phase::backward);
    const bool through_attention = input_gradient || trains_attention();
    const bool below_mlp = parallel() ? input_gradient : through_attention;
    make_again(one_norm() ? norm1_ : norm2_);
    BufferId d_norm2 = -1, d_y1 = output_gradient;
    if (below_mlp || trains_mlp())
      d_norm2 = mlp_->backward(before(post2_, residual2_.backward(output_gradient)), below_mlp);
    if (below_mlp && !one_norm()) d_y1 = norm2_.backward(d_norm2, output_gradient, products_of_mlp());
    if (!through_attention) return -1;
    if (!one_norm()) make_again(norm1_);
    const BufferId d_norm1 =
        attention_.backward(before(post1_, residual1_.backward(parallel() ? output_gradient : d_y1)), input_gradient);
    if (!input_gradient) return -1;
    return norm1_.backward(one_norm() ? sum(d_norm1, d_norm2) : d_norm1, d_y1, products_of_attention());
  }

  bool recomputes() const override { return s_.recomputes(); }

 private:
  bool trains_attention() const { return attention_.trains(); }
  bool trains_mlp() const { return mlp_->trains(); }
  bool parallel() const { return c_.model().parallel_block != model::ParallelBlock::none; }
  // Norms behind the branches, of what they give (model.post_norms).
  bool post_norms() const { return c_.model().post_norms; }
  NormLayer post_norm(const UnitScope& scope, const char* name) const {
    return NormLayer::within_branch(scope.context, scope.builder, scope.parameters, name_ + name,
                                    scope.context.model().hidden);
  }
  // Where the branch's output goes, which the norm's backward reads.
  BufferId declare_post_norm(NormLayer& norm, const std::string& branch) {
    const BufferId in = s_.builder.activation(name_ + "." + branch + ".branch", c_.compute,
                                              {c_.local_tokens, c_.model().hidden}, s_.restored());
    norm.declare_buffers(in, s_.restored(), Lifetime::slot, c_.compute);
    return in;
  }
  BufferId behind(NormLayer& norm, BufferId branch) {
    if (!post_norms()) return branch;
    norm.forward();
    return norm.out();
  }
  BufferId before(NormLayer& norm, BufferId gradient) { return post_norms() ? norm.backward(gradient, -1) : gradient; }
  // In backward, before what its branch reads of it.
  void make_again(NormLayer& norm) {
    if (!s_.makes_norms_again()) return;
    s_.builder.set_phase(Phase::recompute);
    norm.forward();
    s_.builder.set_phase(Phase::backward);
  }
  // How many products read a norm's output.
  bool packed() const { return c_.profile().packed_products || c_.model().norm != model::NormKind::rmsnorm; }
  int products_of_attention() const { return packed() || c_.model().latent_attention() ? 1 : 3; }
  int products_of_mlp() const { return packed() || experts_ || !c_.model().gated() ? 1 : 2; }
  bool one_norm() const { return c_.model().parallel_block == model::ParallelBlock::one_norm; }
  BufferId sum(BufferId a, BufferId b) {
    const std::vector<std::int64_t> rows{c_.local_tokens, c_.model().hidden};
    const BufferId out = s_.builder.workspace(s_.builder.here("d_" + name_ + ".branches"), c_.compute, rows);
    s_.builder.op("d_" + name_ + ".branches", program::Elementwise{program::ElementwiseFn::add, rows[0] * rows[1]},
                  c_.compute, {{a}, {b}}, {{out}});
    return out;
  }
  bool adapts_norm1() const {
    return c_.adapts(&model::Adapters::qkv) || (one_norm() && c_.adapts(&model::Adapters::fc1));
  }
  // Of experts the shared ones alone read it as it is, and what weighs the rows that go to the others.
  bool adapts_norm2() const {
    const model::Model& m = c_.model();
    return (c_.adapts(&model::Adapters::fc1) && (!experts_ || m.shared_experts > 0)) ||
           (experts_ && m.weigh_expert_inputs);
  }
  // `fused`: one product reads it, and no other kernel does. Routers read it in 16 bits, and so do adapters
  // (`adapted`).
  BufferId declare_norm(NormLayer& norm, BufferId in, bool fused, bool adapted) {
    const Lifetime saved = s_.makes_norms_again() ? Lifetime::slot : s_.restored();
    const DType type = norm.type_for_products(s_.fp8 && fused && !adapted);
    const bool trained = !c_.scenario.training.lora();
    const bool kept = trained && (is_narrow(type) || (experts_ && &norm == &norm2_));
    return norm.declare_buffers(in, saved, kept ? saved : s_.of_product_input(saved, adapted), type);
  }

  UnitScope s_;
  const Context& c_;
  std::string name_;
  bool experts_;
  NormLayer norm1_;
  AttentionBranch attention_;
  NormLayer post1_;
  Residual residual1_;
  NormLayer norm2_;
  std::unique_ptr<FeedForward> mlp_;
  NormLayer post2_;
  Residual residual2_;
  BufferId x_ = -1, y1_ = -1, y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_block(UnitScope scope, int layer) {
  return std::make_unique<Block>(scope, layer);
}

}  // namespace rehearse::lower
