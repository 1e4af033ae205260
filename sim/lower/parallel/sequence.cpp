#include "sim/lower/parallel/sequence.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::StreamKind;

BufferId SequenceParallel::all_gather(const std::string& name, BufferId shard, std::int64_t width) {
  const BufferId whole =
      builder_.workspace(builder_.here(name + ".gathered"), context_.compute, {context_.tokens, width});
  builder_.op(name + ".all_gather",
              Collective{CollectiveKind::all_gather, context_.groups.tensor, context_.tokens * width}, context_.compute,
              {{shard}}, {{whole}}, StreamKind::tensor);
  return whole;
}

BufferId SequenceParallel::reduce_scatter(const std::string& name, BufferId partial, std::int64_t width) {
  const BufferId shard =
      builder_.workspace(builder_.here(name + ".scattered"), context_.compute, {context_.local_tokens, width});
  builder_.op(name + ".reduce_scatter",
              Collective{CollectiveKind::reduce_scatter, context_.groups.tensor, context_.tokens * width},
              context_.compute, {{partial}}, {{shard}}, StreamKind::tensor);
  return shard;
}

}  // namespace rehearse::lower
