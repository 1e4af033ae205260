// The end of a round of local steps (plan.local_steps), which is a body of its own behind the optimizer's, run in every
// n-th step. Until then each worker - the ranks that differ from it in no replica coordinate - has stepped by the
// mean of its own gradients; buckets are those of gradients. Of each bucket of n parameters a rank makes its part, of
// n / r where r ranks of a worker hold the same, one with those of the other workers:
//
//   average    all_reduce {values or their fp32 copy} in place, then mean -> values
//   nesterov   difference {values, outer} -> fp32; all_reduce; update {sum, outer, momentum} -> outer, momentum, values
//
// and where r is above 1 the worker's ranks gather the parts. The first needs no memory of its own; the second keeps
// 8 n / r bytes, outer and momentum in fp32, and 4 n / r for as long as the body runs. All differences are made before
// the first update, so that buckets are reduced one behind the other while kernels go on. What the inner optimizer
// keeps stays the worker's own, as in DiLoCo.
#include <string>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::OuterPart;
using program::OuterStep;
using program::StreamKind;

namespace {

OuterStep outer_of(const plan::Plan& plan, OuterPart part, std::int64_t elements) {
  OuterStep step;
  step.part = part;
  step.elements = elements;
  step.workers = plan.workers();
  step.lr = plan.outer_lr;
  step.mu = plan.outer_momentum;
  return step;
}

}  // namespace

void ParameterStore::make_outer_state(Bucket& bucket, const std::string& suffix) {
  const plan::Plan& plan = context_.plan();
  if (!plan.steps_apart() || bucket.frozen) return;
  const std::int64_t parts = outer_parts(bucket);
  bucket.outer_part = bucket.master >= 0 ? bucket.master : bucket.value_shard;
  if (parts > 1)
    bucket.outer_part =
        builder_.slice("outer_part" + suffix, bucket.outer_part, static_cast<int>(parts), axes_of(bucket));
  if (plan.outer_optimizer == plan::OuterOptimizer::average) return;
  const auto state = [&](const std::string& name, program::Init::Kind init) {
    const BufferId id = builder_.add_buffer({name + suffix,
                                             DType::f32,
                                             {bucket.padded / parts},
                                             BufferClass::optimizer,
                                             Lifetime::persistent,
                                             -1,
                                             0,
                                             0,
                                             {},
                                             {init, 0, {}, -1}});
    if (parts > 1) builder_.set_shard_axes(id, axes_of(bucket));
    return id;
  };
  bucket.outer = state("outer", program::Init::Kind::normal);
  if (plan.outer_momentum > 0) bucket.outer_momentum = state("outer_momentum", program::Init::Kind::zeros);
}

// Of the values themselves, which are fp32 or have a copy that is, or of what they have moved by. Returns where the sum
// of all workers' is.
BufferId ParameterStore::emit_outer_reduce(const Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const std::int64_t part = builder_.buffer(bucket.outer_part).elements();
  BufferId sum = bucket.outer_part;
  if (bucket.outer >= 0) {
    sum = builder_.add_buffer({"outer_difference" + suffix,
                               DType::f32,
                               {part},
                               BufferClass::communication,
                               Lifetime::slot,
                               -1,
                               0,
                               0,
                               {},
                               {}});
    builder_.op("outer_difference" + suffix, outer_of(context_.plan(), OuterPart::difference, part), DType::f32,
                {{bucket.outer_part}, {bucket.outer}}, {{sum}});
  }
  builder_.op_on("replica", StreamKind::data, "outer_reduce" + suffix,
                 Collective{CollectiveKind::all_reduce, context_.groups.replica, part}, DType::f32, {{sum}}, {{sum}});
  return sum;
}

void ParameterStore::emit_outer_update(const Bucket& bucket, int index, BufferId sum) {
  const bool mean = bucket.outer < 0, whole = outer_parts(bucket) == 1;
  OuterStep step = outer_of(context_.plan(), mean ? OuterPart::mean : OuterPart::update,
                            builder_.buffer(bucket.outer_part).elements());
  step.master = whole && bucket.master >= 0;
  step.momentum = bucket.outer_momentum >= 0;
  std::vector<Operand> reads{{sum}}, writes;
  if (!mean) {
    reads.push_back({bucket.outer});
    writes.push_back({bucket.outer});
    if (step.momentum) reads.push_back({bucket.outer_momentum}), writes.push_back({bucket.outer_momentum});
  }
  writes.push_back({whole ? bucket.value_shard : bucket.outer_part});
  if (step.master) writes.push_back({bucket.master});
  builder_.op("outer_update.bucket" + std::to_string(index), step, DType::f32, reads, writes);
}

// The parts of all ranks of the worker, in fp32, and what is computed with.
void ParameterStore::gather_outer(const Bucket& bucket, int index) {
  if (outer_parts(bucket) == 1) return;
  const std::string suffix = ".bucket" + std::to_string(index);
  const BufferId whole = bucket.master >= 0 ? bucket.master : bucket.value_shard;
  builder_.op("outer_gather" + suffix, Collective{CollectiveKind::all_gather, group_of(bucket), bucket.padded},
              DType::f32, {{bucket.outer_part}}, {{whole}}, StreamKind::data);
  if (bucket.master >= 0)
    builder_.op("outer_cast" + suffix, program::Elementwise{program::ElementwiseFn::cast, bucket.padded},
                builder_.buffer(bucket.value_shard).dtype, {{whole}}, {{bucket.value_shard}});
}

// In forward order, as the optimizer's steps.
void ParameterStore::emit_outer_step() {
  REHEARSE_CHECK(context_.groups.replica >= 0, "local steps of one worker");
  builder_.set_phase(Phase::optimizer);
  std::vector<std::pair<std::size_t, BufferId>> sums;
  for (std::size_t i = buckets_.size(); i-- > 0;)
    if (!buckets_[i].frozen) sums.emplace_back(i, emit_outer_reduce(buckets_[i], static_cast<int>(i)));
  for (const auto& [i, sum] : sums) emit_outer_update(buckets_[i], static_cast<int>(i), sum);
  for (const auto& [i, sum] : sums) gather_outer(buckets_[i], static_cast<int>(i));
}

}  // namespace rehearse::lower
