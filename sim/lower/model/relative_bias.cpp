// The table of biases of scores by distance that the layers of an encoder, or of its decoder, share (T5, Raffel et al.
// 2020, arXiv 1910.10683, section 2.1: "all layers share" it). As a unit of its own it has the parameter; what is
// computed with it is the blocks' (attention_core.cpp). Stages that share a stack each have a copy and sum its
// gradients, as Megatron-LM does (core/distributed/finalize_model_grads.py, position embeddings). Over the tensor group
// it is split by heads.
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

class RelativeBias : public Unit {
 public:
  RelativeBias(UnitScope scope, bool decoder, bool copy) : s_(scope), decoder_(decoder), copy_(copy) {}

  ParamId table() const override { return table_; }
  bool backward_reads_parameters() const override { return false; }

  void declare_parameters() override {
    const model::Model& m = s_.context.model();
    const Groups& groups = s_.context.groups;
    ParamSpec spec{decoder_ ? "decoder.relative_bias.weight" : "encoder.relative_bias.weight",
                   {m.heads, m.relative_buckets},
                   0,
                   program::Init::Kind::normal,
                   0.02};
    spec.table = true;
    spec.held_by = decoder_ ? groups.decoder_bias : groups.encoder_bias;
    spec.tied = spec.held_by >= 0;
    spec.copy = copy_;
    table_ = s_.parameters.add(s_.number, std::move(spec));
  }
  BufferId declare_buffers(BufferId input, Lifetime /*output*/) override { return input; }
  void forward(bool) override {}
  BufferId backward(BufferId output_gradient, bool) override { return output_gradient; }

 private:
  UnitScope s_;
  bool decoder_, copy_;
  ParamId table_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_relative_bias(UnitScope scope, bool decoder, bool copy) {
  return std::make_unique<RelativeBias>(scope, decoder, copy);
}

}  // namespace rehearse::lower
