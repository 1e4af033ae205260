// What data parallelism does with buckets: reduces gradients as backward completes them, gathers ZeRO-3 parameters
// before use, and ends the step: remaining reductions, the global gradient norm, the optimizer on what the rank owns,
// and the gather of updated parameters (ZeRO 1 and 2).
#include <string>

#include "sim/lower/parameters.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

// A tied embedding's bucket waits for the other stage's copy; replicated parameters under sequence parallelism for
// their sum over the tensor group.
bool ParameterStore::deferred(const Bucket& bucket) const {
  return (bucket.tied && context_.groups.embedding >= 0) || (bucket.replicated && context_.sequence_parallel);
}

bool ParameterStore::counted(const Bucket& bucket) const {
  return !(bucket.tied && context_.groups.embedding >= 0 && bucket.unit > 0);
}

void ParameterStore::gather(int unit) {
  if (!gathers()) return;
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::param_gather);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    if (b.unit != unit) continue;
    builder_.op("gather.bucket" + std::to_string(i),
                Collective{CollectiveKind::all_gather, context_.groups.data, b.padded}, context_.compute,
                {{b.value_shard}}, {{b.values}}, StreamKind::data);
  }
  builder_.set_phase(phase);
}

void ParameterStore::emit_zero_gradients() {
  builder_.set_phase(Phase::backward);
  // With one micro-batch a shard is written by its reduction, not added to.
  if (transient_gradients() && context_.micro_batches == 1) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    const BufferId target = transient_gradients() ? b.gradient_shard : b.gradients;
    builder_.op("zero_grad.bucket" + std::to_string(i),
                Elementwise{ElementwiseFn::fill, builder_.buffer(target).elements()}, context_.gradient, {},
                {{target}});
  }
}

// ZeRO 2 and 3, each micro-batch: the full gradients of the bucket become our shard's sum.
void ParameterStore::reduce_transient(Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::grad_reduce);
  if (bucket.gathered_pad >= 0)
    builder_.op("zero_padding" + suffix, Elementwise{ElementwiseFn::fill, bucket.padded - bucket.elements},
                context_.reduce, {}, {{bucket.gathered_pad}});
  if (bucket.replicated && context_.sequence_parallel) reduce_over_tensor(bucket, index);
  const Collective scatter{CollectiveKind::reduce_scatter, context_.groups.data, bucket.padded};
  if (context_.micro_batches == 1 && context_.reduce == context_.gradient) {
    builder_.op("reduce_scatter" + suffix, scatter, context_.reduce, {{bucket.gradients}}, {{bucket.gradient_shard}},
                StreamKind::data);
  } else {
    const std::string name = "reduced" + suffix + "." + std::to_string(builder_.current_body());
    const BufferId reduced = builder_.add_buffer({name,
                                                  context_.reduce,
                                                  {bucket.shard},
                                                  program::BufferClass::communication,
                                                  Lifetime::slot,
                                                  -1,
                                                  0,
                                                  0,
                                                  Axis::data,
                                                  {}});
    builder_.op("reduce_scatter" + suffix, scatter, context_.reduce, {{bucket.gradients}}, {{reduced}},
                StreamKind::data);
    if (context_.micro_batches == 1) {
      builder_.op("cast_reduced" + suffix, Elementwise{ElementwiseFn::cast, bucket.shard}, context_.gradient,
                  {{reduced}}, {{bucket.gradient_shard}}, StreamKind::data);
    } else {
      builder_.op("accumulate" + suffix, Elementwise{ElementwiseFn::accumulate, bucket.shard}, context_.gradient,
                  {{reduced}, {bucket.gradient_shard}}, {{bucket.gradient_shard}}, StreamKind::data);
    }
  }
  bucket.reduced = true;
  builder_.set_phase(phase);
}

// ZeRO 0: all-reduce in place. ZeRO 1: reduce-scatter into our shard of the bucket. In another type than the gradients
// are stored in, or by a framework that keeps buckets apart, through a copy.
void ParameterStore::reduce(Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::grad_reduce);
  const bool cast = context_.reduce != context_.gradient || context_.profile().copies_buckets;
  BufferId whole = bucket.gradients, shard = bucket.gradient_shard;
  if (cast) {
    const std::string name = "send" + suffix + "." + std::to_string(builder_.current_body());
    whole = builder_.add_buffer({name,
                                 context_.reduce,
                                 {bucket.padded},
                                 program::BufferClass::communication,
                                 Lifetime::slot,
                                 -1,
                                 0,
                                 0,
                                 Axis::data,
                                 {}});
    if (sharded()) shard = builder_.slice(name + ".shard", whole, static_cast<int>(context_.data), Axis::data);
    builder_.op("cast" + suffix, Elementwise{ElementwiseFn::cast, bucket.padded}, context_.reduce, {{bucket.gradients}},
                {{whole}});
  }
  if (sharded()) {
    builder_.op("reduce_scatter" + suffix,
                Collective{CollectiveKind::reduce_scatter, context_.groups.data, bucket.padded}, context_.reduce,
                {{whole}}, {{shard}}, StreamKind::data);
  } else {
    builder_.op("all_reduce" + suffix, Collective{CollectiveKind::all_reduce, context_.groups.data, bucket.padded},
                context_.reduce, {{whole}}, {{whole}}, StreamKind::data);
  }
  // Not beside backward, although the bucket's own gradients may long be there.
  if (!context_.plan().overlap_grad_reduce) builder_.after_compute(builder_.last_op());
  if (cast)
    builder_.op("cast_back" + suffix, Elementwise{ElementwiseFn::cast, sharded() ? bucket.shard : bucket.padded},
                context_.gradient, {{sharded() ? shard : whole}},
                {{sharded() ? bucket.gradient_shard : bucket.gradients}}, StreamKind::data);
  bucket.reduced = true;
  builder_.set_phase(phase);
}

void ParameterStore::reduce_over_tensor(Bucket& bucket, int index) {
  builder_.op("tensor_reduce.bucket" + std::to_string(index),
              Collective{CollectiveKind::all_reduce, context_.groups.tensor, bucket.padded},
              builder_.buffer(bucket.gradients).dtype, {{bucket.gradients}}, {{bucket.gradients}}, StreamKind::tensor);
}

// With transient gradients the shards are summed: both stages shard the table alike. After the stage's last backward,
// as Megatron-LM reduces after the flush (megatron/core/distributed/finalize_model_grads.py): the last stage's gradient
// is done when its last backward begins, and a kernel that waits for the first stage from then on would hold
// multiprocessors that this backward needs.
void ParameterStore::reduce_over_embedding(Bucket& bucket, int index) {
  const BufferId target = transient_gradients() ? bucket.gradient_shard : bucket.gradients;
  builder_.op_on("embedding", StreamKind::pipeline, "embedding_reduce.bucket" + std::to_string(index),
                 Collective{CollectiveKind::all_reduce, context_.groups.embedding, builder_.buffer(target).elements()},
                 context_.gradient, {{target}}, {{target}});
  builder_.after_compute(builder_.last_op());
}

void ParameterStore::emit_step() {
  builder_.set_phase(Phase::grad_reduce);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& b = buckets_[i];
    const auto index = static_cast<int>(i);
    if (b.replicated && context_.sequence_parallel && !transient_gradients()) reduce_over_tensor(b, index);
    if (b.tied && context_.groups.embedding >= 0) reduce_over_embedding(b, index);
    if (context_.groups.data >= 0 && !b.reduced) reduce(b, index);
  }
  builder_.set_phase(Phase::optimizer);
  const bool needed = context_.scenario.training.clip > 0 || loss_scale_ >= 0;
  const BufferId coefficient = needed ? emit_coefficient() : -1;
  // Forward order, so that the first layers' parameters are gathered first.
  for (std::size_t i = buckets_.size(); i-- > 0;) emit_optimizer(buckets_[i], static_cast<int>(i), coefficient);
  if (!sharded() || context_.plan().zero == 3) return;
  builder_.set_phase(Phase::param_gather);
  OpRef last;
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    const Bucket& b = buckets_[i];
    last = builder_.op("gather.bucket" + std::to_string(i),
                       Collective{CollectiveKind::all_gather, context_.groups.data, b.padded}, context_.compute,
                       {{b.value_shard}}, {{b.values}}, StreamKind::data);
  }
  if (!context_.plan().overlap_param_gather)
    builder_.after(builder_.op("wait_for_parameters", program::HostSync{}, context_.compute, {}, {}, StreamKind::host),
                   last);
}

// Sum of the squares of every gradient of the model, once each; then min(1, clip / norm), and what it says of the loss
// scale: an overflow anywhere makes the sum not finite on every rank.
BufferId ParameterStore::emit_coefficient() {
  const BufferId sum = builder_.workspace("grad_norm.sum", DType::f32, {1}, Lifetime::step);
  const BufferId clip = builder_.workspace("grad_norm.clip", DType::f32, {1}, Lifetime::step);
  builder_.op("grad_norm.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{sum}});
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    if (!counted(b)) continue;
    builder_.op("grad_norm.bucket" + std::to_string(i),
                program::SumSquares{builder_.buffer(b.gradient_shard).elements(), b.replicated}, context_.gradient,
                {{b.gradient_shard}, {sum}}, {{sum}});
  }
  OpRef reduced;
  if (context_.groups.norm >= 0)
    reduced =
        builder_.op_on("norm", StreamKind::data, "grad_norm.all_reduce",
                       Collective{CollectiveKind::all_reduce, context_.groups.norm, 1}, DType::f32, {{sum}}, {{sum}});
  std::vector<Operand> reads{{sum}};
  if (loss_scale_ >= 0) reads.push_back({loss_scale_});
  const OpRef coefficient =
      builder_.op("grad_norm.clip", program::ClipCoefficient{context_.scenario.training.clip, loss_scale_ >= 0},
                  DType::f32, reads, {{clip}});
  if (loss_scale_ >= 0)
    builder_.op("loss_scale.update", program::UpdateLossScale{context_.scenario.training.loss_scale_interval},
                DType::f32, {{clip}, {loss_scale_}}, {{loss_scale_}});
  if (context_.profile().host_sync_on_norm)
    builder_.after(builder_.op("grad_norm.read", program::HostSync{}, DType::f32, {}, {}, StreamKind::host),
                   coefficient);
  return clip;
}

void ParameterStore::emit_optimizer(Bucket& bucket, int index, BufferId coefficient) {
  program::Optimizer step{context_.scenario.training.optimizer == plan::OptimizerKind::adamw, context_.master,
                          coefficient >= 0, bucket.shard, !context_.profile().fused_optimizer};
  std::vector<Operand> reads{{bucket.gradient_shard}}, writes{{bucket.value_shard}};
  if (coefficient >= 0) reads.push_back({coefficient});
  reads.push_back({bucket.value_shard});
  for (const BufferId state : {bucket.master, bucket.exp_avg, bucket.exp_avg_sq}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  builder_.op("optimizer.bucket" + std::to_string(index), step, DType::f32, reads, writes);
}

}  // namespace rehearse::lower
