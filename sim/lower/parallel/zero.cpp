// ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054): which part of a bucket a rank keeps (the table in parameters.h),
// how ZeRO 2 and 3 make a shard's sum of a micro-batch's full gradients, and the gathers that make whole parameters of
// shards: before use (ZeRO 3) or after the optimizer (ZeRO 1 and 2).
#include <string>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

void ParameterStore::make_buffers(Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const std::int64_t d = sharded() ? context_.shards : 1;
  bucket.padded = (bucket.elements + d - 1) / d * d;
  bucket.shard = bucket.padded / d;
  const int zero = sharded() ? context_.plan().zero : 0;

  // Each parameter is drawn by its global name; the bucket's init says only that it has contents.
  program::Init drawn;
  drawn.kind = program::Init::Kind::normal;
  const auto persistent = [&](const std::string& name, DType dtype, std::int64_t n, BufferClass cls,
                              program::Init init) {
    return builder_.add_buffer({name + suffix, dtype, {n}, cls, Lifetime::persistent, -1, 0, 0, {}, std::move(init)});
  };
  const auto transient = [&](const std::string& name, DType dtype) {
    return builder_.add_buffer(
        {name + suffix, dtype, {bucket.padded}, BufferClass::communication, Lifetime::slot, -1, 0, 0, {}, {}});
  };
  const auto shard_of = [&](const std::string& name, BufferId base) {
    return builder_.slice(name + suffix, base, static_cast<int>(d), kShardAxes);
  };
  if (zero == 3) {
    bucket.value_shard = persistent("param.shard", context_.compute, bucket.shard, BufferClass::parameter, drawn);
    bucket.values = transient("param", context_.compute);
  } else {
    bucket.values = persistent("param", context_.compute, bucket.padded, BufferClass::parameter, drawn);
    bucket.value_shard = zero == 0 ? bucket.values : shard_of("param.shard", bucket.values);
  }
  if (zero >= 2) {
    bucket.gradient_shard = persistent("grad.shard", context_.gradient, bucket.shard, BufferClass::gradient,
                                       {program::Init::Kind::zeros, 0, {}, -1});
    bucket.gradients = transient("grad", context_.reduce);
    if (bucket.padded > bucket.elements)
      bucket.gathered_pad =
          builder_.view("grad.padding" + suffix, bucket.gradients, bucket.elements, {bucket.padded - bucket.elements});
  } else {
    bucket.gradients = persistent("grad", context_.gradient, bucket.padded, BufferClass::gradient,
                                  {program::Init::Kind::zeros, 0, {}, -1});
    bucket.gradient_shard = zero == 0 ? bucket.gradients : shard_of("grad.shard", bucket.gradients);
  }
  make_optimizer_state(bucket, index);
}

// ZeRO 2 and 3, each micro-batch: the full gradients of the bucket become our shard's sum. Groups that shard apart add
// theirs up after the last micro-batch, or as often where the framework does so.
void ParameterStore::reduce_transient(Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::grad_reduce);
  if (bucket.gathered_pad >= 0)
    builder_.op("zero_padding" + suffix, Elementwise{ElementwiseFn::fill, bucket.padded - bucket.elements},
                context_.reduce, {}, {{bucket.gathered_pad}});
  if (bucket.replicated && context_.sequence_parallel) reduce_over_tensor(bucket, index);
  const Collective scatter{CollectiveKind::reduce_scatter, context_.groups.data, bucket.padded};
  const bool one = context_.micro_batches == 1;
  const bool each = one || context_.profile().reduces_replicas_always;
  if (one && context_.reduce == context_.gradient) {
    builder_.op("reduce_scatter" + suffix, scatter, context_.reduce, {{bucket.gradients}}, {{bucket.gradient_shard}},
                StreamKind::data);
    reduce_over_replicas(bucket.gradient_shard, index);
  } else {
    const std::string name = "reduced" + suffix + "." + std::to_string(builder_.current_body());
    const BufferId reduced = builder_.add_buffer(
        {name, context_.reduce, {bucket.shard}, program::BufferClass::communication, Lifetime::slot, -1, 0, 0, {}, {}});
    builder_.op("reduce_scatter" + suffix, scatter, context_.reduce, {{bucket.gradients}}, {{reduced}},
                StreamKind::data);
    if (each) reduce_over_replicas(reduced, index);
    if (one) {
      builder_.op("cast_reduced" + suffix, Elementwise{ElementwiseFn::cast, bucket.shard}, context_.gradient,
                  {{reduced}}, {{bucket.gradient_shard}}, StreamKind::data);
    } else {
      builder_.op("accumulate" + suffix, Elementwise{ElementwiseFn::accumulate, bucket.shard}, context_.gradient,
                  {{reduced}, {bucket.gradient_shard}}, {{bucket.gradient_shard}}, StreamKind::data);
      if (!each && last_backward_) reduce_over_replicas(bucket.gradient_shard, index);
    }
  }
  bucket.reduced = true;
  builder_.set_phase(phase);
}

// Hybrid sharding: the sum of a shard's gradients over the groups that shard apart. On a stream of its own, as NCCL's
// communicators have: it goes beside the next bucket's reduce-scatter.
void ParameterStore::reduce_over_replicas(BufferId shard, int index) {
  if (context_.groups.replica < 0) return;
  const program::Buffer& b = builder_.buffer(shard);
  builder_.op_on("replica", StreamKind::data, "replica_reduce.bucket" + std::to_string(index),
                 Collective{CollectiveKind::all_reduce, context_.groups.replica, b.elements()}, b.dtype, {{shard}},
                 {{shard}});
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

void ParameterStore::gather_updated() {
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

}  // namespace rehearse::lower
