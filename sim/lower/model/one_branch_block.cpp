// A layer of one branch (model.layer_pattern): a norm, a mixer, attention, a feed-forward layer or experts, and its sum
// with what came in, as Megatron-Core's MambaStack has them (megatron/core/ssm/mamba_block.py).
#include "sim/lower/model/attention.h"
#include "sim/lower/model/experts.h"
#include "sim/lower/model/mixer.h"
#include "sim/lower/model/mlp.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/residual.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

// Of the layers without attention.
std::unique_ptr<FeedForward> branch_of(const UnitScope& scope, const std::string& block, int layer) {
  const model::Model& m = scope.context.model();
  switch (m.branch(layer)) {
    case 'M':
      return std::make_unique<MixerBranch>(scope, block);
    case 'E':
      return std::make_unique<ExpertBranch>(scope, block, layer);
    case '-':
      return std::make_unique<MlpBranch>(scope, block, "mlp", m.ffn_hidden);
    default:
      return nullptr;
  }
}

class OneBranchBlock : public Unit {
 public:
  OneBranchBlock(UnitScope scope, int layer, const AttentionBranch::Kind& kind)
      : s_(scope),
        c_(scope.context),
        name_("layer" + std::to_string(layer)),
        experts_(scope.context.model().has_experts(layer)),
        gated_(scope.context.model().gated() && scope.context.model().branch(layer) == '-'),
        norm_(scope.context, scope.builder, scope.parameters, name_ + ".norm"),
        branch_(branch_of(scope, name_, layer)),
        residual_(scope.context, scope.builder, scope.parameters, name_, branch_ ? "mlp" : "attention", layer * 4 + 2) {
    if (!branch_) attention_.emplace(scope, name_, layer * 4 + 1, kind);
  }

  void declare_parameters() override {
    norm_.declare_parameters(s_.number);
    if (attention_)
      attention_->declare_parameters();
    else
      branch_->declare_parameters();
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    x_ = input;
    const Lifetime saved = s_.makes_norms_again() ? Lifetime::slot : s_.restored();
    const DType type = norm_.type_for_products(s_.fp8 && !experts_);
    const bool kept = is_narrow(type) || experts_;
    const BufferId in = norm_.declare_buffers(x_, saved, kept ? saved : s_.of_product_input(saved), type);
    if (attention_)
      attention_->declare_buffers(in);
    else
      branch_->declare_buffers(in);
    if (s_.makes_norms_again()) attention_ ? attention_->input_made_again() : branch_->input_made_again();
    residual_.declare_mask(s_.restored());
    return y_ = residual_.declare_sum("out", output);
  }

  // Again: stops after what backward reads where the framework does.
  void forward(bool again) override {
    norm_.forward();
    const bool stops = again && c_.model().dropout == 0 && c_.profile().recompute_stops_early;
    BufferId out = -1;
    if (attention_) {
      out = attention_->forward(again);
      if (stops) return;
    } else {
      branch_->forward_to_activation(again);
      if (stops && !branch_->keeps_output()) return;
      if (stops && experts_ && s_.keeps_some()) return branch_->restore_output();
      out = branch_->forward_from_activation(again);
      if (stops) return;
    }
    BufferId y = y_;
    if (again)
      y = s_.builder.workspace(s_.builder.here(name_ + ".out_again"), c_.residual, s_.builder.buffer(y_).shape);
    residual_.forward(out, attention_ ? attention_->bias() : branch_->bias(), x_, y);
  }

  BufferId backward(BufferId output_gradient, bool input_gradient) override {
    s_.builder.set_phase(Phase::backward);
    if (s_.makes_norms_again()) {
      s_.builder.set_phase(Phase::recompute);
      norm_.forward();
      s_.builder.set_phase(Phase::backward);
    }
    const BufferId d_branch = residual_.backward(output_gradient);
    const BufferId d_norm =
        attention_ ? attention_->backward(d_branch, input_gradient) : branch_->backward(d_branch, input_gradient);
    return input_gradient ? norm_.backward(d_norm, output_gradient, products()) : -1;
  }

  bool recomputes() const override { return s_.recomputes(); }

 private:
  // How many products read the norm's output.
  int products() const {
    if (c_.profile().packed_products || c_.model().norm != model::NormKind::rmsnorm) return 1;
    return attention_ ? 3 : gated_ ? 2 : 1;
  }

  UnitScope s_;
  const Context& c_;
  std::string name_;
  bool experts_, gated_;
  NormLayer norm_;
  std::unique_ptr<FeedForward> branch_;
  std::optional<AttentionBranch> attention_;
  Residual residual_;
  BufferId x_ = -1, y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_one_branch_block(UnitScope scope, int layer) {
  const model::Model& m = scope.context.model();
  AttentionBranch::Kind kind;
  kind.window = m.window(layer, scope.context.seq);
  kind.rope_base = m.rotation_base(layer);
  kind.scaled = !m.rotates_by_local_base(layer);
  kind.rotates = !m.rotates_nothing(layer);
  kind.chunk = m.chunk(layer, scope.context.seq);
  return std::make_unique<OneBranchBlock>(scope, layer, kind);
}

}  // namespace rehearse::lower
