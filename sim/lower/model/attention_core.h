// The attention core between the qkv product and the output projection, flash or unfused, as this rank's heads see it.
#pragma once

#include <string>

#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/context.h"

namespace rehearse::lower {

class AttentionCore {
 public:
  // `keys`: tokens of another sequence that all of them are compared with; 0: their own. `chunk`: model.attention_chunk
  // of the layer; 0: none.
  AttentionCore(const UnitScope& scope, std::string name, int site, std::int64_t window, std::int64_t keys = 0,
                std::int64_t chunk = 0)
      : context_(scope.context),
        builder_(scope.builder),
        scope_(scope),
        name_(std::move(name)),
        site_(site),
        window_(window),
        keys_(keys),
        chunk_(chunk) {}

  // Sinks, where the model has them: one number a head.
  void declare_parameters();

  // qkv [rows, kv_heads, group + 2, head_dim], values perhaps of another width -> out [rows, attention_width]; both
  // live as what UnitScope::kept() says. Rows are all tokens of the micro-batch, or this rank's where keys are
  // exchanged. What the unfused core keeps between (5 a s^2 b bytes a layer with dropout) lives only in a slot where
  // backward restores it by itself: under recomputation selective, and under ops, which keeps out.
  // With `keys`: q [rows, heads, head_dim] and kv [keys, micro_batch, kv_heads, head_dim + value_dim].
  BufferId declare(BufferId qkv, BufferId kv = -1);
  void forward();
  // out_gradient -> gradient of qkv, or of q.
  BufferId backward(BufferId out_gradient);
  BufferId d_kv() const { return d_kv_; }  // after that, of kv
  // Whether ranks of a context group hand keys on: else a rank has those of all tokens.
  bool exchanges_keys() const { return context_.plan().context > 1 && !context_.all_to_all(); }

 private:
  program::Attention part(program::AttentionPart p) const;
  void emit(const std::string& what, program::AttentionPart p, const std::vector<Operand>& reads,
            const std::vector<Operand>& writes);
  program::AttentionKernel kernel() const;
  bool unfused() const { return context_.model().attention == model::AttentionKind::unfused; }
  std::int64_t rows() const { return exchanges_keys() ? context_.tokens : context_.batch * context_.seq; }
  KeyExchange keys() const;
  // Whether scores have a bias by distance, whose table the stack's layers share.
  bool biased() const { return scope_.relative_bias >= 0 && keys_ == 0; }
  void bias_gradient(BufferId d_scores);
  BufferId keys_operand() const { return kv_ >= 0 ? kv_ : qkv_; }
  bool dropout() const { return context_.model().dropout > 0; }
  bool restores_core() const {
    return scope_.recompute == plan::Recompute::selective || scope_.recompute == plan::Recompute::ops;
  }
  void scores_to_probabilities();
  void scales_apart();
  void caps_apart();
  BufferId backward_flash(BufferId out_gradient);
  void add_sinks();
  void sink_gradient(BufferId out_gradient);
  BufferId backward_unfused(BufferId out_gradient);

  const Context& context_;
  RoleBuilder& builder_;
  UnitScope scope_;
  std::string name_;
  int site_;
  std::int64_t window_, keys_, chunk_;
  ParamId sinks_ = -1;
  BufferId kv_ = -1, d_kv_ = -1;
  BufferId qkv_ = -1, out_ = -1, logsumexp_ = -1;
  BufferId probabilities_ = -1, dropped_ = -1, mask_ = -1;
  BufferId scores_ = -1;  // kept for backward where they are capped
};

}  // namespace rehearse::lower
