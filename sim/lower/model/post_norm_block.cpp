// One post-norm transformer block (Vaswani et al. 2017, arXiv 1706.03762, section 3.1; BERT's): attention and the MLP
// each read the stream itself, and what they add to it is normed: y = norm(x + attention(x)), out = norm(y + mlp(y)).
// In backward the norm's gradient goes both ways, into the branch and past it, so the two are added by a kernel. What
// forward keeps are the 34 s b h + 5 a s^2 b bytes of a pre-norm block (block.cpp).
// Under autocast norms give fp32, which is cast for products (casts.h).
#include "sim/lower/model/attention.h"
#include "sim/lower/model/casts.h"
#include "sim/lower/model/eager_passes.h"
#include "sim/lower/model/mlp.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/residual.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

class PostNormBlock : public Unit {
 public:
  PostNormBlock(UnitScope scope, int layer)
      : s_(scope),
        c_(scope.context),
        name_("layer" + std::to_string(layer)),
        casts_(scope.context, scope.builder),
        attention_(scope, name_, layer * 4 + 1),
        residual1_(scope.context, scope.builder, scope.parameters, name_, "attention", layer * 4 + 2),
        norm1_(scope.context, scope.builder, scope.parameters, name_ + ".norm1"),
        mlp_(scope, name_, "mlp", scope.context.model().ffn_hidden),
        residual2_(scope.context, scope.builder, scope.parameters, name_, "mlp", layer * 4 + 3),
        norm2_(scope.context, scope.builder, scope.parameters, name_ + ".norm2") {}

  void declare_parameters() override {
    attention_.declare_parameters();
    norm1_.declare_parameters(s_.number);
    mlp_.declare_parameters();
    norm2_.declare_parameters(s_.number);
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    const Lifetime saved = s_.restored();
    x_ = input;
    attention_in_ = casts_.declare_narrow(name_ + ".attention.in", x_, saved);
    attention_.declare_buffers(attention_in_);
    residual1_.declare_mask(saved);
    sum1_ = residual1_.declare_sum("attention.residual", saved);
    y_ = norm1_.declare_buffers(sum1_, saved, saved, c_.residual);
    mlp_in_ = casts_.declare_narrow(name_ + ".mlp.in", y_, saved);
    mlp_.declare_buffers(mlp_in_);
    residual2_.declare_mask(saved);
    sum2_ = residual2_.declare_sum("mlp.residual", saved);
    return norm2_.declare_buffers(sum2_, saved, output, c_.residual);
  }

  // Again: the last norm too, whose statistics backward reads.
  void forward(bool again) override {
    casts_.narrow(x_, attention_in_);
    residual1_.forward(attention_.forward(again), attention_.bias(), x_, sum1_);
    norm1_.forward();
    casts_.narrow(y_, mlp_in_);
    mlp_.forward_to_activation(again);
    residual2_.forward(mlp_.forward_from_activation(), mlp_.bias(), y_, sum2_);
    norm2_.forward(again ? s_.builder.workspace(s_.builder.here(name_ + ".out_again"), c_.residual, rows()) : -1);
  }

  BufferId backward(BufferId output_gradient, bool /*input_gradient*/) override {
    s_.builder.set_phase(Phase::backward);
    const BufferId d_sum2 = norm2_.backward(output_gradient, -1);
    const BufferId d_y = sum("mlp", mlp_.backward(residual2_.backward(d_sum2), true), d_sum2);
    const BufferId d_sum1 = norm1_.backward(d_y, -1);
    const BufferId d_in = sum("attention", attention_.backward(residual1_.backward(d_sum1), true), d_sum1);
    if (!c_.profile().packed_products) {
      const EagerKernels added = eager_sum(c_.local_tokens * c_.model().hidden * size_of(c_.residual) / 2, 3);
      s_.builder.takes_kernels(1 + added.kernels, added.passes);
    }
    return d_in;
  }

  bool recomputes() const override { return s_.recomputes(); }

 private:
  std::vector<std::int64_t> rows() const { return {c_.local_tokens, c_.model().hidden}; }
  // Of a branch's input: what came through the branch and what came past it.
  BufferId sum(const std::string& branch, BufferId through, BufferId past) {
    const std::string name = "d_" + name_ + "." + branch + ".branches";
    through = casts_.wide("d_" + name_ + "." + branch + ".wide", through);
    const BufferId out = s_.builder.workspace(s_.builder.here(name), c_.residual, rows());
    s_.builder.op(name, program::Elementwise{program::ElementwiseFn::add, c_.local_tokens * c_.model().hidden},
                  c_.residual, {{through}, {past}}, {{out}});
    return out;
  }

  UnitScope s_;
  const Context& c_;
  std::string name_;
  Casts casts_;
  AttentionBranch attention_;
  Residual residual1_;
  NormLayer norm1_;
  MlpBranch mlp_;
  Residual residual2_;
  NormLayer norm2_;
  BufferId x_ = -1, attention_in_ = -1, mlp_in_ = -1, sum1_ = -1, y_ = -1, sum2_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_post_norm_block(UnitScope scope, int layer) {
  return std::make_unique<PostNormBlock>(scope, layer);
}

}  // namespace rehearse::lower
