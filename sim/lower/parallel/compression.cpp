// Gradients in fewer bytes (plan.gradient_compression), of buckets that every data-parallel rank gets whole: where an
// all-reduce of a bucket would be, each rank makes its gradients smaller, in the stream that computes, the ranks gather
// what all have sent, and each adds it up in the same order, so that replicas stay the same to the last bit:
//
//   compress {gradients, residual?} -> packed      n gradients in sim/base/gradient_code.h's bytes
//   all_gather packed                              bytes x ranks arrive, not twice the bytes as of an all-reduce
//   decompress {packed of all} -> gradients
//
// Of fp32 values in places that all ranks draw alike (random_k alone) the sum is what is sent: these are all-reduced.
// With error feedback a rank keeps a residual of fp32 beside its gradients, from step to step; with momentum correction
// (Lin et al. 2017, arXiv 1712.01887) the momentum of its own gradients too, and the optimizer has none. It is clipped
// locally then: by the norm of all the rank's gradients, at training.clip / sqrt(ranks) (section 3.1), which is why
// none is sent before the last. While the share warms up, performed, the three ops are there for each share, each in
// its own steps. Low-rank approximations are in low_rank.cpp. Left out: compression between nodes alone.
#include <cmath>
#include <string>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::StreamKind;

void ParameterStore::make_residual(Bucket& bucket, const std::string& suffix) {
  const plan::Plan& plan = context_.plan();
  if (!plan.compresses_gradients() || group_of(bucket) < 0) return;
  const auto state = [&](const std::string& name) {
    return builder_.add_buffer({name + suffix,
                                DType::f32,
                                {bucket.padded},
                                BufferClass::optimizer,
                                Lifetime::persistent,
                                -1,
                                0,
                                0,
                                {},
                                {program::Init::Kind::zeros, 0, {}, -1}});
  };
  if (plan.compresses_by("error_feedback") || plan.corrects_momentum()) bucket.residual = state("residual");
  if (plan.corrects_momentum()) bucket.local_momentum = state("local_momentum");
}

void ParameterStore::reduce_compressed(const Bucket& bucket, int index, BufferId gradients) {
  const plan::Plan& plan = context_.plan();
  const std::string suffix = ".bucket" + std::to_string(index);
  if (plan.compresses_by("power_sgd")) return reduce_low_rank(bucket, index, gradients);
  std::int64_t from = 0;
  if (context_.scenario.purpose == plan::Purpose::perform)
    for (const double share : plan.warmup_shares()) {
      const std::int64_t until = from + plan.gradient_warmup_steps;
      builder_.set_steps(from, until);
      reduce_codes(bucket, ".warmup" + std::to_string(from) + suffix, index, gradients,
                   plan.gradient_code(bucket.padded, share));
      from = until;
    }
  builder_.set_steps(from);
  reduce_codes(bucket, suffix, index, gradients, plan.gradient_code(bucket.padded));
  builder_.set_steps(0);
}

void ParameterStore::compress_codes(const Bucket& bucket, const std::string& suffix, program::Compress shape,
                                    BufferId gradients, BufferId packed) {
  shape.corrected = bucket.local_momentum >= 0;
  shape.feedback = bucket.residual >= 0 && !shape.corrected;
  shape.clip = shape.corrected && local_clip_ >= 0;
  std::vector<Operand> reads{{gradients}}, writes{{packed}};
  for (const BufferId state : {bucket.residual, bucket.local_momentum}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  if (shape.clip) reads.push_back({local_clip_});
  builder_.op("compress" + suffix, shape, builder_.buffer(gradients).dtype, reads, writes);
}

void ParameterStore::reduce_codes(const Bucket& bucket, const std::string& suffix, int index, BufferId gradients,
                                  const GradientCode& code) {
  program::Compress shape;
  shape.code = code;
  shape.site = index;
  shape.spread = axes_of(bucket);
  const bool sums = code.adds_up();
  const std::int64_t members = sums ? 1 : members_of(bucket), each = sums ? code.kept : code.bytes();
  const DType type = sums ? DType::f32 : DType::u8;
  const auto buffer = [&](const std::string& name, std::int64_t n) {
    return builder_.add_buffer(
        {builder_.here(name + suffix), type, {n}, BufferClass::communication, Lifetime::slot, -1, 0, 0, {}, {}});
  };
  const BufferId packed = buffer("packed", each), all = sums ? packed : buffer("packed.all", each * members);
  compress_codes(bucket, suffix, shape, gradients, packed);
  const CollectiveKind kind = sums ? CollectiveKind::all_reduce : CollectiveKind::all_gather;
  builder_.op((sums ? "all_reduce" : "all_gather") + suffix, Collective{kind, group_of(bucket), each * members}, type,
              {{packed}}, {{all}}, StreamKind::data);
  if (!context_.plan().overlap_grad_reduce) builder_.after_compute(builder_.last_op());
  shape.decompress = true;
  shape.members = members;
  builder_.op("decompress" + suffix, shape, builder_.buffer(gradients).dtype, {{all}}, {{gradients}}, StreamKind::data);
}

// N ranks' gradients, alike and independent, add up to a norm of sqrt(N) times each one's.
void ParameterStore::emit_local_clip() {
  const BufferId sum = builder_.workspace("local_norm.sum", DType::f32, {1}, Lifetime::step);
  local_clip_ = builder_.workspace("local_norm.clip", DType::f32, {1}, Lifetime::step);
  builder_.op("local_norm.zero", program::Elementwise{program::ElementwiseFn::fill, 1}, DType::f32, {}, {{sum}});
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (!buckets_[i].frozen)
      builder_.op("local_norm.bucket" + std::to_string(i), program::SumSquares{buckets_[i].padded}, context_.gradient,
                  {{buckets_[i].gradients}, {sum}}, {{sum}});
  builder_.op("local_norm.clip",
              program::ClipCoefficient{
                  context_.scenario.training.clip / std::sqrt(static_cast<double>(context_.shards)), false},
              DType::f32, {{sum}}, {{local_clip_}});
}

}  // namespace rehearse::lower
