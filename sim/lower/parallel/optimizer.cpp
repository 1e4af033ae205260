// The optimizer: its states beside a bucket, and the step: the global gradient norm, what it says of clipping and of
// the loss scale, and the update of what the rank owns.
#include <string>

#include "sim/base/check.h"
#include "sim/base/moment_codes.h"
#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

void ParameterStore::make_optimizer_state(Bucket& bucket, int index) {
  if (context_.plan().served()) return;  // the servers'
  const std::string suffix = ".bucket" + std::to_string(index);
  const auto state = [&](const std::string& name, DType type, std::int64_t elements, program::Init::Kind init) {
    const BufferId id = builder_.add_buffer({name + suffix,
                                             type,
                                             {elements},
                                             BufferClass::optimizer,
                                             Lifetime::persistent,
                                             -1,
                                             0,
                                             0,
                                             {},
                                             {init, 0, {}, -1}});
    builder_.set_shard_axes(id, axes_of(bucket));
    if (steps_on_host(bucket)) builder_.set_on_host(id);
    return id;
  };
  const plan::OptimizerKind kind = context_.scenario.training.optimizer;
  const bool adam = kind == plan::OptimizerKind::adamw || kind == plan::OptimizerKind::lamb ||
                    (kind == plan::OptimizerKind::muon && !bucket.muon);
  const bool sgd = kind == plan::OptimizerKind::sgd;
  const bool averages =
      adam || bucket.muon || (sgd && context_.scenario.training.momentum > 0 && !corrects_momentum(bucket));
  const auto zeros = [&](const std::string& name, DType type, std::int64_t elements) {
    return state(name, type, elements, program::Init::Kind::zeros);
  };
  if ((context_.master && !shards_in_fp32(bucket)) || (steps_on_host(bucket) && !values_on_host(bucket)))
    bucket.master = state("master", DType::f32, bucket.shard, program::Init::Kind::normal);
  if (averages) bucket.exp_avg = zeros("exp_avg", bucket.moments, bucket.shard);
  if (adam) bucket.exp_avg_sq = zeros("exp_avg_sq", bucket.moments, bucket.shard);
  if (bucket.moments != DType::u8) return;
  // Whatever their codes, elements of a block whose largest is 0 are 0.
  const std::int64_t blocks = bucket.shard / kMomentBlock;
  if (averages) bucket.exp_avg_largest = zeros("exp_avg.largest", DType::f32, blocks);
  if (adam) bucket.exp_avg_sq_largest = zeros("exp_avg_sq.largest", DType::f32, blocks);
}

void ParameterStore::emit_zero_gradients() {
  builder_.set_phase(Phase::backward);
  if (counted_ >= 0)
    builder_.op("loss.counted.zero", Elementwise{ElementwiseFn::fill, 2}, DType::f32, {}, {{counted_}});
  // With one micro-batch a shard is written by its reduction, not added to.
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    if (b.frozen || (transient_gradients(b) && context_.micro_batches == 1)) continue;
    if (b.held == Held::blocks) continue;                             // after its 16 bits are cast
    if (takes_first_gradient() && !transient_gradients(b)) continue;  // the first backward writes it
    const bool on_host = keeps_gradients_on_host(b);
    const BufferId target = on_host ? b.host_gradient : transient_gradients(b) ? b.gradient_shard : b.gradients;
    builder_.op("zero_grad.bucket" + std::to_string(i),
                Elementwise{ElementwiseFn::fill, builder_.buffer(target).elements()}, builder_.buffer(target).dtype, {},
                {{target}}, on_host ? StreamKind::cpu : StreamKind::compute);
  }
}

// In the norm: the first copy only, of a tied embedding or of all parameters, and nothing that is frozen.
bool ParameterStore::counted(const Bucket& bucket) const {
  return !bucket.frozen && !((bucket.held_by >= 0 || bucket.copies >= 0) && bucket.copy);
}

// `unlike`: of what ranks with the same layers have each for itself, experts or tables; else of all else.
void ParameterStore::add_squares(BufferId sum, bool unlike) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    if (!counted(b) || (b.experts || b.owned) != unlike || keeps_gradients_on_host(b)) continue;
    builder_.op("grad_norm.bucket" + std::to_string(i),
                program::SumSquares{builder_.buffer(b.gradient_shard).elements(), copies(b)}, context_.gradient,
                {{b.gradient_shard}, {sum}}, {{sum}});
  }
}

// Gradients and losses are sums over targets that count, divided by the number of all; what they are then divided by is
// the share of those that count, of all ranks, known at the end (Megatron-Core distributed/finalize_model_grads.py,
// num_tokens).
void ParameterStore::emit_counted() {
  if (context_.groups.targets >= 0)
    builder_.op_on("norm", StreamKind::data, "loss.counted.all_reduce",
                   Collective{CollectiveKind::all_reduce, context_.groups.targets, 2}, DType::f32, {{counted_}},
                   {{counted_}});
  Elementwise share{ElementwiseFn::scale, 2};
  share.value = context_.loss_weight();
  builder_.op("loss.counted.share", share, DType::f32, {{counted_}}, {{counted_}});
  for (const BufferId loss : losses_)
    builder_.op("loss.mean_of_counted", program::CountedTargets{true}, DType::f32, {{loss}, {counted_}}, {{loss}});
}

// Sum of the squares of every gradient of the model, once each; then min(1, clip / norm), and what it says of the loss
// scale: an overflow anywhere makes the sum not finite on every rank.
BufferId ParameterStore::emit_coefficient() {
  const BufferId sum = builder_.workspace("grad_norm.sum", DType::f32, {1}, Lifetime::step);
  const BufferId clip = builder_.workspace("grad_norm.clip", DType::f32, {1}, Lifetime::step);
  builder_.op("grad_norm.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{sum}});
  emit_host_squares(sum);
  if (context_.groups.expert_norm >= 0) {  // ranks with the same layers have other experts
    add_squares(sum, true);
    builder_.op_on("norm", StreamKind::data, "grad_norm.experts.all_reduce",
                   Collective{CollectiveKind::all_reduce, context_.groups.expert_norm, 1}, DType::f32, {{sum}},
                   {{sum}});
    add_squares(sum, false);
  } else {
    add_squares(sum, true);
    add_squares(sum, false);
  }
  OpRef reduced;
  if (context_.groups.norm >= 0)
    reduced =
        builder_.op_on("norm", StreamKind::data, "grad_norm.all_reduce",
                       Collective{CollectiveKind::all_reduce, context_.groups.norm, 1}, DType::f32, {{sum}}, {{sum}});
  std::vector<Operand> reads{{sum}};
  const BufferId scale = loss_scale_ >= 0 ? loss_scale_ : counted_;
  if (scale >= 0) reads.push_back({scale});
  const OpRef coefficient =
      builder_.op("grad_norm.clip", program::ClipCoefficient{context_.scenario.training.clip, scale >= 0}, DType::f32,
                  reads, {{clip}});
  if (loss_scale_ >= 0)
    builder_.op("loss_scale.update", program::UpdateLossScale{context_.scenario.training.loss_scale_interval},
                DType::f32, {{clip}, {loss_scale_}}, {{loss_scale_}});
  if (context_.profile().host_sync_on_norm)
    builder_.after(builder_.op("grad_norm.read", program::HostSync{}, DType::f32, {}, {}, StreamKind::host),
                   coefficient);
  return clip;
}

void ParameterStore::emit_optimizer(Bucket& bucket, int index, BufferId coefficient) {
  if (steps_on_host(bucket)) return emit_host_optimizer(bucket, index, coefficient);
  // What is held in 8 bits is updated in fp32 alone, and cast in a pass of its own (emit_held).
  const bool in_fp32 = bucket.held != Held::none;
  const BufferId values = in_fp32 ? bucket.master : bucket.value_shard;
  program::Optimizer step{context_.scenario.training.optimizer != plan::OptimizerKind::sgd,
                          bucket.master >= 0 && !in_fp32,
                          coefficient >= 0,
                          bucket.shard,
                          !context_.profile().fused_optimizer && context_.moments != DType::u8,
                          bucket.exp_avg_largest >= 0};
  std::vector<Operand> reads{{bucket.gradient_shard}}, writes{{values}};
  if (coefficient >= 0) reads.push_back({coefficient});
  reads.push_back({values});
  for (const BufferId state : {in_fp32 ? -1 : bucket.master, bucket.exp_avg, bucket.exp_avg_sq, bucket.exp_avg_largest,
                               bucket.exp_avg_sq_largest}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  builder_.op("optimizer.bucket" + std::to_string(index), step, DType::f32, reads, writes);
}

void ParameterStore::emit_step() {
  reduce_rest();
  builder_.set_phase(Phase::optimizer);
  if (counted_ >= 0) emit_counted();
  const bool needed = (context_.scenario.training.clip > 0 && local_clip_ < 0) || loss_scale_ >= 0 || counted_ >= 0;
  BufferId coefficient = needed ? emit_coefficient() : -1;
  const bool on_host = context_.plan().offload_optimizer;
  if (on_host && coefficient >= 0) coefficient = coefficient_on_host(coefficient);
  if (context_.scenario.training.optimizer == plan::OptimizerKind::lamb) {
    emit_lamb(coefficient);
    return gather_updated();
  }
  const bool adafactor = context_.scenario.training.optimizer == plan::OptimizerKind::adafactor;
  if (adafactor && !adafactor_of_whole_tensors()) {
    emit_adafactor_parts(coefficient);
    return gather_updated();
  }
  // Forward order, so that the first layers' parameters are gathered first.
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    Bucket& b = buckets_[i];
    if (b.frozen) continue;
    if (!adafactor && !b.muon) {
      emit_optimizer(b, static_cast<int>(i), coefficient);
      continue;
    }
    if (b.muon) {
      emit_muon(b, static_cast<int>(i), coefficient);
      continue;
    }
    for (auto id = b.params.rbegin(); id != b.params.rend(); ++id)
      emit_adafactor(params_[static_cast<std::size_t>(*id)], b, coefficient);
  }
  if (on_host) wait_for_host_optimizer();
  emit_held();
  gather_updated();
}

}  // namespace rehearse::lower
