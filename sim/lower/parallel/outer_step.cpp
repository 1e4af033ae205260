// The end of a round of local steps (plan.local_steps), which is a body of its own behind the optimizer's, run in every
// so-manieth step. Until then each worker - the ranks that differ from it in no replica coordinate - has stepped by the
// mean of its own gradients; buckets are those of gradients. Of each bucket of n parameters:
//
//   average    all_reduce {values or their fp32 copy} in place, then mean -> values
//   nesterov   difference {values, outer} -> fp32; all_reduce; update {sum, outer, momentum} -> outer, momentum, values
//
// The first needs no memory of its own; the second keeps 8n bytes, outer and momentum in fp32, and 4n for as long as
// the body runs. All differences are made before the first update, so that buckets are reduced one behind the other
// while kernels go on. What the inner optimizer keeps stays the worker's own, as in DiLoCo.
#include <string>

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
  if (!plan.steps_apart() || bucket.frozen || plan.outer_optimizer == plan::OuterOptimizer::average) return;
  const auto state = [&](const std::string& name, program::Init::Kind init) {
    return builder_.add_buffer({name + suffix,
                                DType::f32,
                                {bucket.shard},
                                BufferClass::optimizer,
                                Lifetime::persistent,
                                -1,
                                0,
                                0,
                                {},
                                {init, 0, {}, -1}});
  };
  bucket.outer = state("outer", program::Init::Kind::normal);
  if (plan.outer_momentum > 0) bucket.outer_momentum = state("outer_momentum", program::Init::Kind::zeros);
}

// In place of the values, which are fp32 or have a copy that is.
void ParameterStore::emit_mean(const Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const BufferId sum = bucket.master >= 0 ? bucket.master : bucket.value_shard;
  builder_.op("outer_reduce" + suffix, Collective{CollectiveKind::all_reduce, context_.groups.replica, bucket.shard},
              DType::f32, {{sum}}, {{sum}}, StreamKind::data);
}

BufferId ParameterStore::emit_difference(const Bucket& bucket, int index) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const BufferId difference = builder_.add_buffer({"outer_difference" + suffix,
                                                   DType::f32,
                                                   {bucket.shard},
                                                   BufferClass::communication,
                                                   Lifetime::slot,
                                                   -1,
                                                   0,
                                                   0,
                                                   {},
                                                   {}});
  const BufferId value = bucket.master >= 0 ? bucket.master : bucket.value_shard;
  builder_.op("outer_difference" + suffix, outer_of(context_.plan(), OuterPart::difference, bucket.shard), DType::f32,
              {{value}, {bucket.outer}}, {{difference}});
  builder_.op("outer_reduce" + suffix, Collective{CollectiveKind::all_reduce, context_.groups.replica, bucket.shard},
              DType::f32, {{difference}}, {{difference}}, StreamKind::data);
  return difference;
}

// `sum`: of differences; -1: of the values, which is where they are.
void ParameterStore::emit_outer_update(const Bucket& bucket, int index, BufferId sum) {
  const bool mean = sum < 0;
  OuterStep step = outer_of(context_.plan(), mean ? OuterPart::mean : OuterPart::update, bucket.shard);
  step.master = bucket.master >= 0;
  step.momentum = bucket.outer_momentum >= 0;
  std::vector<Operand> reads, writes;
  if (mean) {
    reads.push_back({step.master ? bucket.master : bucket.value_shard});
  } else {
    reads = {{sum}, {bucket.outer}};
    writes = {{bucket.outer}};
    if (step.momentum) reads.push_back({bucket.outer_momentum}), writes.push_back({bucket.outer_momentum});
  }
  writes.push_back({bucket.value_shard});
  if (step.master) writes.push_back({bucket.master});
  builder_.op("outer_update.bucket" + std::to_string(index), step, DType::f32, reads, writes);
}

// In forward order, as the optimizer's steps.
void ParameterStore::emit_outer_step() {
  REHEARSE_CHECK(context_.groups.replica >= 0, "local steps of one worker");
  builder_.set_phase(Phase::optimizer);
  std::vector<BufferId> sums(buckets_.size(), -1);
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    if (buckets_[i].frozen) continue;
    if (buckets_[i].outer >= 0)
      sums[i] = emit_difference(buckets_[i], static_cast<int>(i));
    else
      emit_mean(buckets_[i], static_cast<int>(i));
  }
  for (std::size_t i = buckets_.size(); i-- > 0;)
    if (!buckets_[i].frozen) emit_outer_update(buckets_[i], static_cast<int>(i), sums[i]);
}

}  // namespace rehearse::lower
