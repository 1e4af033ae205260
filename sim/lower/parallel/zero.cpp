// ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054): which part of a bucket a rank keeps (the table in parameters.h),
// how ZeRO 2 and 3 make a shard's sum of a micro-batch's full gradients, and the gathers that make whole parameters of
// shards: before use (ZeRO 3) or after the optimizer (ZeRO 1 and 2).
#include <algorithm>
#include <cmath>
#include <string>

#include "sim/base/moment_codes.h"
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
  const std::int64_t d = sharded(bucket) ? members_of(bucket) : 1;
  const DType stored = bucket.held == Held::eight_bits ? DType::e4m3 : context_.compute;
  const std::int64_t each = std::max<std::int64_t>(bucket.piece, bucket.moments == DType::u8 ? kMomentBlock : 1);
  bucket.padded = round_up(bucket.elements, std::max(d, outer_parts(bucket)) * each);
  bucket.shard = bucket.padded / d;
  const int zero = sharded(bucket) ? context_.plan().zero : 0;

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
    return builder_.slice(name + suffix, base, static_cast<int>(d), axes_of(bucket));
  };
  if (zero == 3 && !bucket.kept_whole) {
    bucket.value_shard = persistent("param.shard", shards_in_fp32(bucket) ? DType::f32 : stored, bucket.shard,
                                    BufferClass::parameter, drawn);
    builder_.set_shard_axes(bucket.value_shard, axes_of(bucket));
    if (context_.plan().offload_parameters) builder_.set_on_host(bucket.value_shard);
    bucket.values = transient("param", stored);
  } else if (bucket.held != Held::blocks) {
    bucket.values = persistent("param", stored, bucket.padded, BufferClass::parameter, drawn);
    bucket.value_shard = zero == 0 ? bucket.values : shard_of("param.shard", bucket.values);
  }
  if (bucket.frozen) return;
  if (transient_gradients(bucket)) {
    if (!keeps_gradients_on_host(bucket))
      bucket.gradient_shard = persistent("grad.shard", context_.gradient, bucket.shard, BufferClass::gradient,
                                         {program::Init::Kind::zeros, 0, {}, -1});
    bucket.gradients = transient("grad", context_.profile().casts_gradients ? context_.compute : context_.reduce);
    view_padding(bucket, suffix);
  } else {
    bucket.gradients = persistent("grad", context_.gradient, bucket.padded, BufferClass::gradient,
                                  {program::Init::Kind::zeros, 0, {}, -1});
    bucket.gradient_shard = zero == 0 ? bucket.gradients : shard_of("grad.shard", bucket.gradients);
  }
  if (bucket.held == Held::blocks) hold_in_place_of_gradients(bucket, suffix);
  make_optimizer_state(bucket, index);
  make_residual(bucket, suffix);
  make_right_factors(bucket, suffix);
  make_outer_state(bucket, suffix);
  if (steps_on_host(bucket)) make_host_buffers(bucket, suffix);
}

// What no parameter covers of the bucket's gradients: its end, and where blocks of moments begin anew before it.
void ParameterStore::view_padding(Bucket& bucket, const std::string& suffix) {
  std::int64_t covered = 0;
  const auto up_to = [&](std::int64_t next) {
    if (next <= covered) return;
    const std::string name =
        "grad.padding" + (next < bucket.padded ? std::to_string(bucket.gathered_pads.size()) : "") + suffix;
    bucket.gathered_pads.push_back(builder_.view(name, bucket.gradients, covered, {next - covered}));
  };
  for (const ParamId id : bucket.params) {
    const Param& p = params_[static_cast<std::size_t>(id)];
    up_to(p.offset);
    covered = p.offset + p.elements;
  }
  up_to(bucket.padded);
}

// ZeRO 2 and 3, each micro-batch: the full gradients of the bucket become our shard's sum. Groups that shard apart add
// theirs up after the last micro-batch, or as often where the framework does so.
void ParameterStore::reduce_transient(Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::grad_reduce);
  for (const BufferId pad : bucket.gathered_pads)
    builder_.op("zero_padding" + suffix, Elementwise{ElementwiseFn::fill, builder_.buffer(pad).elements()},
                builder_.buffer(pad).dtype, {}, {{pad}});
  if (sums_over_tensor(bucket)) reduce_over_tensor(bucket, index);
  if (!may_shard(bucket)) {  // whole gradients, which go to the host as they are
    if (replicated_alone(bucket)) reduce_over_replicas(bucket.gradients, index);
    gradients_to_host(bucket, index, bucket.gradients);
    bucket.reduced = true;
    builder_.set_phase(phase);
    return;
  }
  const BufferId gradients = prepared_gradients(bucket, suffix);
  const Collective scatter{CollectiveKind::reduce_scatter, group_of(bucket), bucket.padded};
  const bool one = context_.micro_batches == 1, all_reduces = context_.profile().all_reduces_gradients;
  const bool to_host = keeps_gradients_on_host(bucket);
  const bool each = one || to_host || context_.profile().reduces_replicas_always;
  if (one && context_.reduce == context_.gradient && !all_reduces && !to_host) {
    builder_.op("reduce_scatter" + suffix, scatter, context_.reduce, {{gradients}}, {{bucket.gradient_shard}},
                StreamKind::data);
    reduce_over_replicas(bucket.gradient_shard, index);
  } else {
    const std::string name = "reduced" + suffix + "." + std::to_string(builder_.current_body());
    BufferId reduced = -1;
    if (all_reduces) {
      builder_.op("all_reduce" + suffix, Collective{CollectiveKind::all_reduce, group_of(bucket), bucket.padded},
                  context_.reduce, {{gradients}}, {{gradients}}, StreamKind::data);
      reduced = builder_.slice(name, copied_back(bucket, suffix, gradients), static_cast<int>(members_of(bucket)),
                               axes_of(bucket));
    } else {
      reduced = builder_.add_buffer(
          {name, context_.reduce, {bucket.shard}, BufferClass::communication, Lifetime::slot, -1, 0, 0, {}, {}});
      builder_.op("reduce_scatter" + suffix, scatter, context_.reduce, {{gradients}}, {{reduced}}, StreamKind::data);
    }
    if (each) reduce_over_replicas(reduced, index);
    if (to_host) {
      gradients_to_host(bucket, index, reduced);
    } else if (one) {
      builder_.op("cast_reduced" + suffix, Elementwise{ElementwiseFn::cast, bucket.shard}, context_.gradient,
                  {{reduced}}, {{bucket.gradient_shard}}, StreamKind::data);
    } else {
      builder_.op("accumulate" + suffix, Elementwise{ElementwiseFn::accumulate, bucket.shard}, context_.gradient,
                  {{reduced}, {bucket.gradient_shard}}, {{bucket.gradient_shard}}, StreamKind::data);
      if (!each && last_backward_) reduce_over_replicas(bucket.gradient_shard, index);
    }
  }
  host_waits("wait_for_reduction" + suffix);
  bucket.reduced = true;
  builder_.set_phase(phase);
}

// ShardGather::alone: the host waits for what the data stream was given last.
void ParameterStore::host_waits(const std::string& name) {
  if (context_.profile().shard_gather != plan::ShardGather::alone) return;
  const OpRef last = builder_.last_op();
  builder_.after(builder_.op(name, program::HostSync{}, context_.compute, {}, {}, StreamKind::host), last);
}

// What was summed in a tensor that gradients were joined into goes back to where they were.
BufferId ParameterStore::copied_back(const Bucket& bucket, const std::string& suffix, BufferId summed) {
  if (!context_.profile().flattens_gradients) return summed;
  const DType type = builder_.buffer(bucket.gradients).dtype;
  const ElementwiseFn fn = builder_.buffer(summed).dtype == type ? ElementwiseFn::copy : ElementwiseFn::cast;
  builder_.op("copy_back" + suffix, Elementwise{fn, bucket.padded}, type, {{summed}}, {{bucket.gradients}},
              StreamKind::data);
  return bucket.gradients;
}

// Hybrid sharding: the sum of a shard's gradients over the groups that shard apart. On a stream of its own, as NCCL's
// communicators have: it goes during the next bucket's reduce-scatter.
void ParameterStore::reduce_over_replicas(BufferId shard, int index) {
  if (context_.groups.replica < 0) return;
  const program::Buffer& b = builder_.buffer(shard);
  builder_.op_on("replica", StreamKind::data, "replica_reduce.bucket" + std::to_string(index),
                 Collective{CollectiveKind::all_reduce, context_.groups.replica, b.elements()}, b.dtype, {{shard}},
                 {{shard}});
}

// What is sent of a bucket's gradients, after the passes that the framework makes over them.
BufferId ParameterStore::prepared_gradients(const Bucket& bucket, const std::string& suffix) {
  const plan::FrameworkProfile& profile = context_.profile();
  BufferId gradients = bucket.gradients;
  const auto pass = [&](const std::string& what, ElementwiseFn fn, DType dtype) {
    const BufferId from = gradients;
    gradients = builder_.add_buffer({builder_.here(what + suffix),
                                     dtype,
                                     {bucket.padded},
                                     BufferClass::communication,
                                     Lifetime::slot,
                                     -1,
                                     0,
                                     0,
                                     {},
                                     {}});
    builder_.op(what + suffix, Elementwise{fn, bucket.padded}, dtype, {{from}}, {{gradients}});
  };
  if (profile.flattens_gradients) pass("flatten", ElementwiseFn::copy, builder_.buffer(gradients).dtype);
  if (builder_.buffer(gradients).dtype != context_.reduce) {
    // Where they are not put together by a copy before, the kernel that puts them together casts them.
    builder_.set_unrolled_casts(profile.unrolled_casts && profile.flattens_gradients);
    pass("widen", ElementwiseFn::cast, context_.reduce);
    builder_.set_unrolled_casts(profile.unrolled_casts);
  }
  if (profile.divides_gradients) {
    Elementwise divide{ElementwiseFn::scale, bucket.padded};
    divide.value = 1;  // the loss is scaled already
    builder_.op("divide" + suffix, divide, context_.reduce, {{gradients}}, {{gradients}});
  }
  if (profile.flattens_gradients && profile.reduce_launches > 0)
    builder_.takes_launches(launches(profile.reduce_launches, bucket.params.size(), members_of(bucket)));
  return gradients;
}

// Of the host, for each rank's piece of `parameters`.
std::int64_t ParameterStore::launches(double each, std::size_t parameters, std::int64_t ranks) const {
  const double all = each * static_cast<double>(ranks) * static_cast<double>(parameters);
  return std::max<std::int64_t>(1, std::llround(all));
}

void ParameterStore::copy_gathered(const Bucket& bucket, int index, const std::string& what, BufferId from,
                                   BufferId to) {
  builder_.op(what + ".bucket" + std::to_string(index), Elementwise{ElementwiseFn::copy, bucket.padded},
              builder_.buffer(from).dtype, {{from}}, {{to}}, StreamKind::data);
}

// The tensor that is gathered is filled with zeros and the host waits for that, then cuts it into a list of a slice a
// rank, of which it fills its own.
void ParameterStore::make_gather_list(const Bucket& b, const std::string& suffix, BufferId shard) {
  const DType stored = builder_.buffer(b.values).dtype;
  const std::string own = builder_.here("own_slice" + suffix) + "." + std::to_string(builder_.last_op().op);
  builder_.op("zero_gathered" + suffix, Elementwise{ElementwiseFn::fill, b.padded}, stored, {}, {{b.values}},
              StreamKind::data);
  host_waits("wait_for_zeros" + suffix);
  const BufferId slice = builder_.slice(own, b.values, static_cast<int>(members_of(b)), axes_of(b));
  builder_.op("own_slice" + suffix, Elementwise{ElementwiseFn::copy, b.shard}, stored, {{shard}}, {{slice}},
              StreamKind::data);
  builder_.takes_launches(launches(context_.profile().gather_list_launches, b.params.size(), members_of(b)));
}

bool ParameterStore::shards_in_fp32(const Bucket& bucket) const {
  return context_.scenario.shards_in_fp32() && sharded(bucket) && !bucket.kept_whole && !bucket.frozen &&
         bucket.held == Held::none;
}

// Our shard of a bucket, as a gather reads it: itself, or a copy on the device, or one in the precision that is
// gathered.
BufferId ParameterStore::shard_to_gather(const Bucket& bucket, const std::string& suffix) {
  const bool from_host = values_on_host(bucket);
  if (!from_host && !shards_in_fp32(bucket)) return bucket.value_shard;
  const DType stored = builder_.buffer(bucket.values).dtype;
  const std::string name = from_host ? "param.arrived" : "param.cast";
  const BufferId copy = builder_.add_buffer({builder_.here(name + suffix) + "." + std::to_string(builder_.last_op().op),
                                             stored,
                                             {bucket.shard},
                                             BufferClass::communication,
                                             Lifetime::slot,
                                             -1,
                                             0,
                                             0,
                                             {},
                                             {}});
  if (from_host)
    builder_.op_on("to_device", StreamKind::copy, "shard.to_device" + suffix,
                   Elementwise{ElementwiseFn::copy, bucket.shard}, stored, {{bucket.value_shard}}, {{copy}});
  else
    builder_.op("cast_shard" + suffix, Elementwise{ElementwiseFn::cast, bucket.shard}, stored, {{bucket.value_shard}},
                {{copy}}, StreamKind::data);
  return copy;
}

void ParameterStore::gather_bucket(const Bucket& b, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const DType stored = builder_.buffer(b.values).dtype;
  BufferId into = b.values;
  if (context_.profile().gather_into != plan::GatherInto::place)
    into = builder_.add_buffer({builder_.here("gathered" + suffix) + "." + std::to_string(builder_.last_op().op),
                                stored,
                                {b.padded},
                                BufferClass::communication,
                                Lifetime::slot,
                                -1,
                                0,
                                0,
                                {},
                                {}});
  const BufferId shard = shard_to_gather(b, suffix);
  if (context_.profile().gather_list_launches > 0) make_gather_list(b, suffix, shard);
  const OpRef gather = builder_.op("gather" + suffix, Collective{CollectiveKind::all_gather, group_of(b), b.padded},
                                   stored, {{shard}}, {{into}}, StreamKind::data);
  if (into != b.values) copy_out(b, index, gather, into);
  host_waits("wait_for_gather" + suffix);
}

// What was gathered goes to its place. Where the host waits for it, the copies that CUDA's queue does not hold are
// launched once the gather has ended.
void ParameterStore::copy_out(const Bucket& b, int index, OpRef gather, BufferId from) {
  const double each = context_.profile().gather_launches;
  const std::int64_t all = each > 0 ? launches(each, b.params.size(), members_of(b)) : 1;
  const bool alone = context_.profile().shard_gather == plan::ShardGather::alone;
  if (!alone || all <= kQueuedLaunches) {
    copy_gathered(b, index, "copy_out", from, b.values);
    return builder_.takes_launches(all);
  }
  const std::string suffix = ".bucket" + std::to_string(index);
  const std::string mark = "." + std::to_string(gather.op);
  const std::int64_t queued = b.padded / all * kQueuedLaunches;
  const auto copy = [&](const std::string& name, std::int64_t offset, std::int64_t elements, std::int64_t count) {
    const std::string part = builder_.here(name + suffix) + mark;
    const BufferId source = builder_.view(part + ".from", from, offset, {elements});
    const BufferId target = builder_.view(part + ".to", b.values, offset, {elements});
    builder_.op(name + suffix, Elementwise{ElementwiseFn::copy, elements}, builder_.buffer(from).dtype, {{source}},
                {{target}}, StreamKind::data);
    builder_.takes_launches(count);
  };
  copy("copy_out", 0, queued, kQueuedLaunches);
  builder_.after(
      builder_.op("wait_for_queue" + suffix, program::HostSync{}, context_.compute, {}, {}, StreamKind::host), gather);
  copy("copy_rest", queued, b.padded - queued, all - kQueuedLaunches);
}

void ParameterStore::gather(int unit) {
  if (!gathers()) return;
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::param_gather);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].unit == unit && !buckets_[i].kept_whole && sharded(buckets_[i]))
      gather_bucket(buckets_[i], static_cast<int>(i));
  builder_.set_phase(phase);
}

// DeepSpeed's coordinator walks the trace of modules from the end of one's forward: the weights after it in the layer,
// then the same in backward, each counted when its module is passed; once the distance is reached, what has not come is
// released (partitioned_param_coordinator.py, __params_to_release).
void ParameterStore::gather_again(int unit) {
  const std::int64_t distance = context_.plan().reuse_distance;
  if (!gathers() || distance == 0) return;
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::param_gather);
  std::int64_t later = 0;  // elements of the unit's weights after this one, whose buckets come last to first
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    if (b.unit != unit || b.kept_whole || !sharded(b)) continue;
    if (2 * later >= distance) gather_bucket(b, static_cast<int>(i));
    later += b.elements;
  }
  builder_.set_phase(phase);
}

// After the optimizer: with ZeRO 1 and 2 all parameters, with ZeRO-3 those that stay whole.
void ParameterStore::gather_updated() {
  if (context_.plan().zero == 0) return;
  const bool shards_stay = context_.plan().zero == 3;
  const bool lists = context_.profile().gather_into == plan::GatherInto::list && !shards_stay;
  builder_.set_phase(Phase::param_gather);
  struct Lists {
    int index = 0;
    BufferId flat = -1, list = -1;
  };
  std::vector<Lists> made;
  std::size_t next = 0;
  OpRef last;
  const auto buffer = [&](const std::string& name, const Bucket& of) {
    return builder_.add_buffer({name,
                                builder_.buffer(of.values).dtype,
                                {of.padded},
                                BufferClass::communication,
                                Lifetime::slot,
                                -1,
                                0,
                                0,
                                {},
                                {}});
  };
  if (lists)
    for (std::size_t i = buckets_.size(); i-- > 0;) {
      const Bucket& b = buckets_[i];
      if (!sharded(b) || b.frozen) continue;
      const std::string suffix = ".bucket" + std::to_string(i);
      made.push_back({static_cast<int>(i), buffer("gathered" + suffix, b), buffer("listed" + suffix, b)});
      copy_gathered(b, made.back().index, "flatten_list", b.values, made.back().list);
    }
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    const Bucket& b = buckets_[i];
    if (!sharded(b) || b.frozen || (shards_stay && !b.kept_whole)) continue;
    const BufferId into = lists ? made[next++].flat : b.values;
    last =
        builder_.op("gather.bucket" + std::to_string(i), Collective{CollectiveKind::all_gather, group_of(b), b.padded},
                    builder_.buffer(b.values).dtype, {{b.value_shard}}, {{into}}, StreamKind::data);
  }
  for (const Lists& l : made)
    copy_gathered(buckets_[static_cast<std::size_t>(l.index)], l.index, "to_list", l.flat, l.list);
  for (const Lists& l : made) {
    const Bucket& b = buckets_[static_cast<std::size_t>(l.index)];
    copy_gathered(b, l.index, "copy_out", l.list, b.values);
    builder_.takes_launches(launches(context_.profile().gather_launches, b.params.size(), members_of(b)));
    last = builder_.last_op();
  }
  if (last.valid() && !context_.plan().overlap_param_gather)
    builder_.after(builder_.op("wait_for_parameters", program::HostSync{}, context_.compute, {}, {}, StreamKind::host),
                   last);
}

}  // namespace rehearse::lower
