// The core between the qkv product and the output projection: scores, softmax, dropout and context, as one flash kernel
// or unfused.
#include "sim/lower/model/attention_core.h"

#include <algorithm>

#include "sim/lower/model/block_parameters.h"

namespace rehearse::lower {

using program::Attention;
using program::AttentionPart;

program::AttentionKernel AttentionCore::kernel() const {
  using model::AttentionKind;
  using program::AttentionKernel;
  switch (context_.model().attention) {
    case AttentionKind::flash1:
      return AttentionKernel::flash1;
    case AttentionKind::flash2:
      return AttentionKernel::flash2;
    case AttentionKind::sdpa_flash:
      return AttentionKernel::sdpa_flash;
    case AttentionKind::flash3:
      return AttentionKernel::flash3;
    case AttentionKind::flash_triton:
      return AttentionKernel::flash_triton;
    case AttentionKind::cudnn:
      return AttentionKernel::cudnn;
    case AttentionKind::flash:
    case AttentionKind::unfused:
      break;
  }
  return AttentionKernel::best;
}

Attention AttentionCore::part(AttentionPart p) const {
  const model::Model& m = context_.model();
  Attention a;
  a.part = p;
  a.kernel = kernel();
  a.causal = context_.causal && keys_ == 0;
  a.micro_batch = context_.batch;
  a.heads_split_over_context = context_.all_to_all();
  const std::int64_t split = context_.tensor * (a.heads_split_over_context ? context_.plan().context : 1);
  a.heads = m.heads / split;
  a.kv_heads = context_.shares_key_head() ? 1 : m.kv_heads / split;
  a.seq = rows() / context_.batch;
  a.head_dim = m.head_dim;
  a.value_dim = m.value_dim();
  a.dropout = m.dropout;
  a.site = site_;
  a.window = window_ < context_.seq ? window_ : 0;
  a.document = chunk_ > 0 ? chunk_ : context_.document;
  a.chunks = chunk_ > 0;
  a.unscaled = m.position == model::Position::relative;
  if (biased()) a.bias_buckets = m.relative_buckets, a.bias_distance = m.relative_distance;
  a.keys = keys_;
  a.softcap = m.attention_softcap;
  a.score_scale = m.query_scale;
  if (p == AttentionPart::flash_backward) {
    a.deterministic = context_.scenario.training.deterministic;
    a.filled = context_.scenario.training.fill_uninitialized;
  }
  if (m.position == model::Position::alibi) a.alibi_heads = m.heads;
  // Of a window's tokens the last is a query itself.
  const std::int64_t cached = context_.plan().cached_tokens;
  a.cached = window_ > 0 ? std::min(cached, window_ - 1) : cached;
  return a;
}

void AttentionCore::emit(const std::string& what, AttentionPart p, const std::vector<Operand>& reads,
                         const std::vector<Operand>& writes) {
  builder_.op(name_ + "." + what, part(p), context_.compute, reads, writes);
}

KeyExchange AttentionCore::keys() const {
  return {context_, builder_, name_, part(AttentionPart::flash_forward)};
}

BufferId AttentionCore::declare(BufferId qkv, BufferId kv) {
  const Lifetime saved = scope_.kept();
  const Attention a = part(AttentionPart::scores);
  qkv_ = qkv, kv_ = kv;
  out_ = builder_.activation(name_ + ".out", context_.compute, {rows(), a.heads * a.values()}, saved);
  if (!unfused()) {
    logsumexp_ = builder_.activation(name_ + ".logsumexp", DType::f32, {rows(), a.heads}, saved);
    return out_;
  }
  const Lifetime core = restores_core() ? Lifetime::slot : saved;
  const std::vector<std::int64_t> square{context_.batch, a.heads, context_.seq, keys_ > 0 ? keys_ : context_.seq};
  probabilities_ = builder_.activation(name_ + ".probabilities", context_.compute, square, core);
  if (a.softcap > 0) scores_ = builder_.activation(name_ + ".scores", context_.compute, square, core);
  if (dropout()) {
    dropped_ = builder_.activation(name_ + ".dropped", context_.compute, square, core);
    mask_ = builder_.activation(name_ + ".mask", DType::u8, square, core);
  }
  return out_;
}

// A kernel reads and writes all scores, or their gradients, once more.
void AttentionCore::scales_apart() {
  const std::int64_t all = builder_.buffer(probabilities_).bytes();
  if (!context_.profile().fused_scores) builder_.takes_kernels(2, {all, all});
}

// Three more do, for a quotient, tanh and a product, as transformers' Gemma 2 has them (modeling_gemma2.py,
// eager_attention_forward).
void AttentionCore::caps_apart() {
  const std::int64_t all = builder_.buffer(probabilities_).bytes();
  if (scores_ >= 0) builder_.takes_kernels(4, {3 * all, 3 * all});
}

void AttentionCore::scores_to_probabilities() {
  const program::Buffer& p = builder_.buffer(probabilities_);
  const BufferId scores =
      scores_ >= 0 ? scores_ : builder_.workspace(builder_.here(name_ + ".scores"), p.dtype, p.shape);
  emit("scores", AttentionPart::scores, kv_ >= 0 ? std::vector<Operand>{{qkv_}, {kv_}} : std::vector<Operand>{{qkv_}},
       {{scores}});
  std::vector<Operand> reads{{scores}};
  if (biased()) reads.push_back({scope_.parameters.value(scope_.relative_bias)});
  emit("softmax", AttentionPart::softmax, reads, {{probabilities_}});
  // A kernel of its own reads the scores and the biases, made once a stack, and writes their sum.
  if (biased() && !context_.profile().fused_score_bias) builder_.takes_kernels(2, {2 * p.bytes(), p.bytes()});
  scales_apart();
  caps_apart();
  if (dropout()) emit("dropout", AttentionPart::dropout, {{probabilities_}}, {{dropped_}, {mask_}});
}

// A sink changes nothing but how much of the keys' sum there is, so that it can be added once all of them are. Of
// frameworks' kernels it is a part (Transformer Engine's softmax_type: learnable; s_aux of FlashAttention 3 in
// transformers), and so is its gradient; our Performer has kernels of their own.
void AttentionCore::add_sinks() {
  if (sinks_ < 0) return;
  scope_.parameters.cast_weight(sinks_);
  Attention a = part(AttentionPart::sinks);
  a.sinks = context_.model().heads / context_.tensor;
  builder_.op(name_ + ".sinks", a, context_.compute, {{out_}, {logsumexp_}, {scope_.parameters.value(sinks_)}},
              {{out_}, {logsumexp_}});
  if (!context_.profile().measured_host) builder_.takes_no_kernel({});
}

void AttentionCore::sink_gradient(BufferId out_gradient) {
  if (sinks_ < 0 || !scope_.parameters.trains(sinks_)) return;
  Attention a = part(AttentionPart::sink_gradient);
  a.sinks = context_.model().heads / context_.tensor;
  const BufferId to = scope_.parameters.accumulated_gradient(sinks_);
  builder_.op(name_ + ".sinks.backward", a, context_.compute,
              {{out_gradient}, {out_}, {logsumexp_}, {scope_.parameters.value(sinks_)}, {to}}, {{to}});
  if (!context_.profile().measured_host) builder_.takes_no_kernel({});
  scope_.parameters.gradient_done(sinks_);
}

void AttentionCore::declare_parameters() {
  if (!context_.model().attention_sinks) return;
  sinks_ = scope_.parameters.add(
      scope_.number, {name_ + ".sinks", {context_.model().heads}, 0, program::Init::Kind::normal, kWeightScale});
}

void AttentionCore::forward() {
  if (exchanges_keys()) {
    keys().forward(qkv_, out_, logsumexp_);
    return add_sinks();
  }
  if (!unfused()) {
    emit("flash_forward", AttentionPart::flash_forward, {{qkv_}}, {{out_}, {logsumexp_}});
    return add_sinks();
  }
  scores_to_probabilities();
  emit("context", AttentionPart::context, {{dropout() ? dropped_ : probabilities_}, {keys_operand()}}, {{out_}});
  // The product gives each head's rows together; a copy gives each token's.
  const std::int64_t out = builder_.buffer(out_).bytes();
  if (!context_.profile().packed_heads) builder_.takes_kernels(2, {out, out});
}

BufferId AttentionCore::backward(BufferId out_gradient) {
  sink_gradient(out_gradient);
  if (exchanges_keys()) return keys().backward(out_gradient, qkv_, out_, logsumexp_);
  return unfused() ? backward_unfused(out_gradient) : backward_flash(out_gradient);
}

BufferId AttentionCore::backward_flash(BufferId out_gradient) {
  const BufferId d_qkv =
      builder_.workspace(builder_.here("d_" + name_ + ".qkv"), context_.compute, builder_.buffer(qkv_).shape);
  emit("flash_backward", AttentionPart::flash_backward, {{out_gradient}, {qkv_}, {out_}, {logsumexp_}}, {{d_qkv}});
  return d_qkv;
}

BufferId AttentionCore::backward_unfused(BufferId out_gradient) {
  if (restores_core()) {
    builder_.set_phase(Phase::recompute);
    scores_to_probabilities();
    if (!context_.profile().recompute_stops_early) {
      const program::Buffer& out = builder_.buffer(out_);
      const BufferId again = builder_.workspace(builder_.here(name_ + ".out_again"), out.dtype, out.shape);
      emit("context", AttentionPart::context, {{dropout() ? dropped_ : probabilities_}, {keys_operand()}}, {{again}});
    }
    builder_.set_phase(Phase::backward);
  }
  const std::vector<std::int64_t> square = builder_.buffer(probabilities_).shape;
  const auto temporary = [&](const std::string& what) {
    return builder_.workspace(builder_.here("d_" + name_ + "." + what), context_.compute, square);
  };
  const BufferId d_qkv =
      builder_.workspace(builder_.here("d_" + name_ + ".qkv"), context_.compute, builder_.buffer(qkv_).shape);
  d_kv_ = d_qkv;
  if (kv_ >= 0)
    d_kv_ = builder_.workspace(builder_.here("d_" + name_ + ".kv"), context_.compute, builder_.buffer(kv_).shape);
  const BufferId read = dropout() ? dropped_ : probabilities_;
  const BufferId d_dropped = temporary("dropped");
  emit("context.backward_probs", AttentionPart::context_backward_probs, {{out_gradient}, {keys_operand()}},
       {{d_dropped}});
  emit("context.backward_value", AttentionPart::context_backward_value, {{out_gradient}, {read}}, {{d_kv_}});
  BufferId d_probabilities = d_dropped;
  if (dropout()) {
    d_probabilities = temporary("probabilities");
    emit("dropout.backward", AttentionPart::dropout_backward, {{d_dropped}, {mask_}}, {{d_probabilities}});
  }
  const BufferId d_scores = temporary("scores");
  std::vector<Operand> softmax{{d_probabilities}, {probabilities_}};
  if (scores_ >= 0) softmax.push_back({scores_});
  emit("softmax.backward", AttentionPart::softmax_backward, softmax, {{d_scores}});
  scales_apart();
  caps_apart();
  if (biased()) bias_gradient(d_scores);
  emit("scores.backward_query", AttentionPart::scores_backward_query, {{d_scores}, {keys_operand()}}, {{d_qkv}});
  emit("scores.backward_key", AttentionPart::scores_backward_key, {{d_scores}, {qkv_}}, {{d_kv_}});
  return d_qkv;
}

// Each layer of a stack adds to the gradient of the table that they share.
void AttentionCore::bias_gradient(BufferId d_scores) {
  const BufferId d_table = scope_.parameters.accumulated_gradient(scope_.relative_bias);
  emit("bias.backward", AttentionPart::bias_gradient, {{d_scores}, {d_table}}, {{d_table}});
  scope_.parameters.gradient_done(scope_.relative_bias);
}

}  // namespace rehearse::lower
