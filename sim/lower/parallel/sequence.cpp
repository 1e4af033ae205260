#include "sim/lower/parallel/sequence.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

BufferId SequenceParallel::all_gather(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime) {
  return all_gather(name, shard, context_.compute, {context_.tokens, width}, lifetime);
}

BufferId SequenceParallel::all_gather(const std::string& name, BufferId shard, DType type,
                                      const std::vector<std::int64_t>& shape, Lifetime lifetime) {
  const BufferId whole = builder_.workspace(builder_.here(name + ".gathered"), type, shape, lifetime);
  const std::int64_t elements = builder_.buffer(whole).elements();
  const bool copies = context_.profile().copies_sequence_shards;
  const BufferId landed = copies ? builder_.workspace(builder_.here(name + ".gathered.by_rank"), type, shape) : whole;
  builder_.op(name + ".all_gather", Collective{CollectiveKind::all_gather, context_.groups.tensor, elements}, type,
              {{shard}}, {{landed}}, StreamKind::tensor);
  if (copies) copy(name + ".gathered.in_order", landed, whole);
  return whole;
}

void SequenceParallel::copy(const std::string& name, BufferId from, BufferId to) {
  const program::Buffer& b = builder_.buffer(to);
  builder_.op(name, Elementwise{ElementwiseFn::copy, b.elements()}, b.dtype, {{from}}, {{to}});
}

BufferId SequenceParallel::reduce_scatter(const std::string& name, BufferId partial, std::int64_t width,
                                          BufferId shard) {
  if (shard < 0)
    shard = builder_.workspace(builder_.here(name + ".scattered"), context_.compute, {context_.local_tokens, width});
  if (context_.profile().copies_sequence_shards) {
    const BufferId by_rank =
        builder_.workspace(builder_.here(name + ".by_rank"), context_.compute, builder_.buffer(partial).shape);
    copy(name + ".by_rank", partial, by_rank);
    partial = by_rank;
  }
  builder_.op(name + ".reduce_scatter",
              Collective{CollectiveKind::reduce_scatter, context_.groups.tensor, context_.tokens * width},
              context_.compute, {{partial}}, {{shard}}, StreamKind::tensor);
  return shard;
}

}  // namespace rehearse::lower
