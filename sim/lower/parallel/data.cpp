// Where gradients of several ranks become one sum: of data-parallel replicas, bucket by bucket as backward completes
// them or at the step's end; of the two copies of a tied embedding, or of all parameters; of parameters that each rank
// of a tensor group saw another shard of the sequence with. Gradients of ZeRO 2 and 3 are in zero.cpp.
#include <string>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

// A tied embedding's bucket waits for the other stage's copy, or for this stage's other chunk; replicated parameters
// under sequence parallelism, and adapters', for their sum over the tensor group.
bool ParameterStore::deferred(const Bucket& bucket) const {
  return (bucket.tied && context_.stages > 1) || sums_over_tensor(bucket);
}

// ZeRO 0: all-reduce in place. ZeRO 1: reduce-scatter into our shard of the bucket. In another type than the gradients
// are stored in, or by a framework that keeps buckets apart, through a copy. Without overlap only after backward,
// although the bucket's own gradients may long be there.
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
                                 {},
                                 {}});
    if (sharded(bucket))
      shard = builder_.slice(name + ".shard", whole, static_cast<int>(members_of(bucket)), axes_of(bucket));
    builder_.op("cast" + suffix, Elementwise{ElementwiseFn::cast, bucket.padded}, context_.reduce, {{bucket.gradients}},
                {{whole}});
    if (sharded(bucket) && context_.profile().reduce_launches > 0)
      builder_.takes_launches(launches(context_.profile().reduce_launches, 1, members_of(bucket)));
  }
  if (sharded(bucket)) {
    builder_.op("reduce_scatter" + suffix, Collective{CollectiveKind::reduce_scatter, group_of(bucket), bucket.padded},
                context_.reduce, {{whole}}, {{shard}}, StreamKind::data);
    if (!context_.plan().overlap_grad_reduce) builder_.after_compute(builder_.last_op());
    reduce_over_replicas(shard, index);
  } else if (replicated_alone(bucket)) {
    reduce_over_replicas(whole, index);
    if (!context_.plan().overlap_grad_reduce) builder_.after_compute(builder_.last_op());
  } else if (context_.plan().compresses_gradients()) {
    reduce_compressed(bucket, index, whole);
  } else {
    builder_.op("all_reduce" + suffix, Collective{CollectiveKind::all_reduce, group_of(bucket), bucket.padded},
                context_.reduce, {{whole}}, {{whole}}, StreamKind::data);
    if (!context_.plan().overlap_grad_reduce) builder_.after_compute(builder_.last_op());
  }
  if (cast)
    builder_.op("cast_back" + suffix, Elementwise{ElementwiseFn::cast, sharded(bucket) ? bucket.shard : bucket.padded},
                context_.gradient, {{sharded(bucket) ? shard : whole}},
                {{sharded(bucket) ? bucket.gradient_shard : bucket.gradients}}, StreamKind::data);
  if (steps_on_host(bucket)) copy_gradients_out(bucket, index);
  bucket.reduced = true;
  builder_.set_phase(phase);
}

void ParameterStore::reduce_over_tensor(Bucket& bucket, int index) {
  const program::GroupId group = bucket.key_ranks > 0 ? context_.groups.key_head : context_.groups.tensor;
  builder_.op("tensor_reduce.bucket" + std::to_string(index),
              Collective{CollectiveKind::all_reduce, group, bucket.padded}, builder_.buffer(bucket.gradients).dtype,
              {{bucket.gradients}}, {{bucket.gradients}}, StreamKind::tensor);
}

// With transient gradients the shards are summed: both stages shard the table alike. After the stage's last backward,
// as Megatron-LM reduces after the flush (megatron/core/distributed/finalize_model_grads.py): the last stage's gradient
// is done when its last backward begins, and a kernel that waits for the first stage from then on would hold
// multiprocessors that this backward needs.
void ParameterStore::reduce_over_embedding(Bucket& bucket, int index) {
  const BufferId target = transient_gradients(bucket) ? bucket.gradient_shard : bucket.gradients;
  // Tables of unlike stages each have a stream, so that no order of theirs makes stages wait for each other in turn.
  const std::string of = bucket.held_by == context_.groups.embedding      ? "embedding"
                         : bucket.held_by == context_.groups.positions    ? "positions"
                         : bucket.held_by == context_.groups.encoder_bias ? "encoder_bias"
                                                                          : "decoder_bias";
  builder_.op_on(of, StreamKind::pipeline, of + "_reduce.bucket" + std::to_string(index),
                 Collective{CollectiveKind::all_reduce, bucket.held_by, builder_.buffer(target).elements()},
                 context_.gradient, {{target}}, {{target}});
  builder_.after_compute(builder_.last_op());
}

// Of two copies of the parameters, when the replicas of each have their sum: both stages of a pair have the same
// buckets in the same order, and with ZeRO 1 cut alike.
void ParameterStore::reduce_over_copies(const Bucket& bucket, int index) {
  builder_.op_on(
      "copies", StreamKind::pipeline, "copies_reduce.bucket" + std::to_string(index),
      Collective{CollectiveKind::all_reduce, bucket.copies, builder_.buffer(bucket.gradient_shard).elements()},
      context_.gradient, {{bucket.gradient_shard}}, {{bucket.gradient_shard}});
  builder_.after_compute(builder_.last_op());
}

void ParameterStore::reduce_rest() {
  builder_.set_phase(Phase::grad_reduce);
  if (context_.plan().corrects_momentum() && context_.scenario.training.clip > 0 && context_.groups.data >= 0)
    emit_local_clip();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& b = buckets_[i];
    const auto index = static_cast<int>(i);
    if (b.frozen) continue;
    if (sums_over_tensor(b) && !transient_gradients(b)) reduce_over_tensor(b, index);
    if (b.held_by >= 0) reduce_over_embedding(b, index);
    if (group_of(b) >= 0 && !b.reduced) reduce(b, index);
    if (b.copies >= 0) reduce_over_copies(b, index);
    if (steps_on_host(b) && !keeps_gradients_on_host(b) && !b.copied_out) copy_gradients_out(b, index);
  }
}

}  // namespace rehearse::lower
