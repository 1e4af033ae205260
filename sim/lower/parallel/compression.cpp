// Gradients in fewer bytes (plan.gradient_compression), of buckets that every data-parallel rank gets whole: where an
// all-reduce of a bucket would be, each rank makes its gradients smaller, in the stream that computes, the ranks gather
// what all have sent, and each adds it up in the same order, so that replicas stay the same to the last bit:
//
//   compress {gradients, residual?} -> packed      n gradients in sim/base/gradient_code.h's bytes
//   all_gather packed                              bytes x ranks arrive, not twice the bytes as of an all-reduce
//   decompress {packed of all} -> gradients
//
// Of fp32 values in places that all ranks draw alike (random_k alone) the sum is what is sent: these are all-reduced.
// With error feedback a rank keeps a residual of fp32 beside its gradients, from step to step. Left out: compression
// between nodes alone, warm-up of the share, momentum correction (Lin et al. 2017, arXiv 1712.01887), low-rank
// approximations (Vogels et al. 2019, arXiv 1905.13727).
#include <string>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::StreamKind;

void ParameterStore::make_residual(Bucket& bucket, const std::string& suffix) {
  if (!context_.plan().compresses_by("error_feedback") || group_of(bucket) < 0) return;
  bucket.residual = builder_.add_buffer({"residual" + suffix,
                                         DType::f32,
                                         {bucket.padded},
                                         BufferClass::optimizer,
                                         Lifetime::persistent,
                                         -1,
                                         0,
                                         0,
                                         {},
                                         {program::Init::Kind::zeros, 0, {}, -1}});
}

void ParameterStore::reduce_compressed(const Bucket& bucket, int index, BufferId gradients) {
  const std::string suffix = ".bucket" + std::to_string(index);
  program::Compress shape;
  shape.code = context_.plan().gradient_code(bucket.padded);
  shape.feedback = bucket.residual >= 0;
  shape.site = index;
  shape.spread = axes_of(bucket);
  const bool sums = shape.code.adds_up();
  const std::int64_t members = sums ? 1 : members_of(bucket), each = sums ? shape.code.kept : shape.code.bytes();
  const DType type = sums ? DType::f32 : DType::u8;
  const auto buffer = [&](const std::string& name, std::int64_t n) {
    return builder_.add_buffer(
        {builder_.here(name + suffix), type, {n}, BufferClass::communication, Lifetime::slot, -1, 0, 0, {}, {}});
  };
  const BufferId packed = buffer("packed", each), all = sums ? packed : buffer("packed.all", each * members);
  const DType stored = builder_.buffer(gradients).dtype;
  std::vector<Operand> reads{{gradients}}, writes{{packed}};
  if (shape.feedback) {
    reads.push_back({bucket.residual});
    writes.push_back({bucket.residual});
  }
  builder_.op("compress" + suffix, shape, stored, reads, writes);
  const CollectiveKind kind = sums ? CollectiveKind::all_reduce : CollectiveKind::all_gather;
  builder_.op((sums ? "all_reduce" : "all_gather") + suffix, Collective{kind, group_of(bucket), each * members}, type,
              {{packed}}, {{all}}, StreamKind::data);
  if (!context_.plan().overlap_grad_reduce) builder_.after_compute(builder_.last_op());
  shape.decompress = true;
  shape.feedback = false;
  shape.members = members;
  builder_.op("decompress" + suffix, shape, stored, {{all}}, {{gradients}}, StreamKind::data);
}

}  // namespace rehearse::lower
