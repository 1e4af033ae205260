// One block of a decoder beside an encoder (T5, Raffel et al. 2020, arXiv 1910.10683, section 2.1): attention with a
// causal mask, attention to the encoder's output, and the feed-forward layer, each behind a norm and added to the
// stream.
#include "sim/lower/model/attention.h"
#include "sim/lower/model/cross_attention.h"
#include "sim/lower/model/mlp.h"
#include "sim/lower/model/norm.h"
#include "sim/lower/model/residual.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

class DecoderBlock : public Unit {
 public:
  DecoderBlock(UnitScope scope, int layer, CrossMemory& memory)
      : s_(scope),
        c_(scope.context),
        name_("layer" + std::to_string(layer)),
        norm1_(scope.context, scope.builder, scope.parameters, name_ + ".norm1"),
        attention_(scope, name_, layer * 4 + 1),
        residual1_(scope.context, scope.builder, scope.parameters, name_, "attention", layer * 4 + 2),
        norm_cross_(scope.context, scope.builder, scope.parameters, name_ + ".norm_cross"),
        cross_(scope, name_, cross_site(layer), memory),
        residual_cross_(scope.context, scope.builder, scope.parameters, name_, "cross", cross_site(layer) + 1),
        norm2_(scope.context, scope.builder, scope.parameters, name_ + ".norm2"),
        mlp_(scope, name_, "mlp", scope.context.model().ffn_hidden),
        residual2_(scope.context, scope.builder, scope.parameters, name_, "mlp", layer * 4 + 3) {}

  void declare_parameters() override {
    norm1_.declare_parameters(s_.number);
    attention_.declare_parameters();
    norm_cross_.declare_parameters(s_.number);
    cross_.declare_parameters();
    norm2_.declare_parameters(s_.number);
    mlp_.declare_parameters();
  }

  BufferId declare_buffers(BufferId input, Lifetime output) override {
    const Lifetime saved = s_.restored();
    x_ = input;
    attention_.declare_buffers(norm1_.declare_buffers(x_, saved));
    residual1_.declare_mask(saved);
    y1_ = residual1_.declare_sum("attention.residual", saved);
    cross_.declare_buffers(norm_cross_.declare_buffers(y1_, saved));
    residual_cross_.declare_mask(saved);
    y2_ = residual_cross_.declare_sum("cross.residual", saved);
    mlp_.declare_buffers(norm2_.declare_buffers(y2_, saved));
    residual2_.declare_mask(saved);
    return y_ = residual2_.declare_sum("out", output);
  }

  // Again: as Block's.
  void forward(bool again) override {
    norm1_.forward();
    residual1_.forward(attention_.forward(again), attention_.bias(), x_, y1_);
    norm_cross_.forward();
    residual_cross_.forward(cross_.forward(), cross_.bias(), y1_, y2_);
    norm2_.forward();
    mlp_.forward_to_activation(again);
    if (again && c_.model().dropout == 0 && c_.profile().recompute_stops_early) return;
    const BufferId out = mlp_.forward_from_activation();
    BufferId y = y_;
    if (again)
      y = s_.builder.workspace(s_.builder.here(name_ + ".out_again"), c_.residual, s_.builder.buffer(y_).shape);
    residual2_.forward(out, mlp_.bias(), y2_, y);
  }

  BufferId backward(BufferId output_gradient, bool /*input_gradient*/) override {
    s_.builder.set_phase(Phase::backward);
    const BufferId d_norm2 = mlp_.backward(residual2_.backward(output_gradient), true);
    const BufferId d_y2 = norm2_.backward(d_norm2, output_gradient, packed() ? 1 : gates());
    const BufferId d_cross = cross_.backward(residual_cross_.backward(d_y2));
    const BufferId d_y1 = norm_cross_.backward(d_cross, d_y2);
    const BufferId d_norm1 = attention_.backward(residual1_.backward(d_y1), true);
    return norm1_.backward(d_norm1, d_y1, packed() ? 1 : 3);
  }

  bool recomputes() const override { return s_.recomputes(); }

 private:
  // Behind those of all blocks' other draws.
  int cross_site(int layer) const { return static_cast<int>(4 * (c_.model().layers + 1)) + 2 * layer; }
  // Whether one product reads a norm's output, as in Block.
  bool packed() const { return c_.profile().packed_products || c_.model().norm != model::NormKind::rmsnorm; }
  int gates() const { return c_.model().gated() ? 2 : 1; }

  UnitScope s_;
  const Context& c_;
  std::string name_;
  NormLayer norm1_;
  AttentionBranch attention_;
  Residual residual1_;
  NormLayer norm_cross_;
  CrossAttention cross_;
  Residual residual_cross_;
  NormLayer norm2_;
  MlpBranch mlp_;
  Residual residual2_;
  BufferId x_ = -1, y1_ = -1, y2_ = -1, y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_decoder_block(UnitScope scope, int layer, CrossMemory& memory) {
  return std::make_unique<DecoderBlock>(scope, layer, memory);
}

}  // namespace rehearse::lower
