#include "sim/lower/parallel/sequence.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::PointToPoint;
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

const std::vector<BufferId>& SequenceParallel::turns(BufferId whole) {
  std::vector<BufferId>& turns = turns_[whole];
  if (turns.empty()) turns = builder_.turns(whole, static_cast<int>(context_.tensor), {Axis::tensor});
  return turns;
}

// The rank's own shard is copied to where others fetch it, and is there at once.
BufferId SequenceParallel::all_gather_in_turns(const std::string& name, BufferId shard, DType type,
                                               const std::vector<std::int64_t>& shape, Lifetime lifetime) {
  const BufferId whole = builder_.workspace(builder_.here(name + ".gathered"), type, shape, lifetime);
  const std::vector<BufferId>& parts = turns(whole);
  const std::int64_t n = builder_.buffer(parts.front()).elements();
  builder_.op(name + ".own", Elementwise{ElementwiseFn::copy, n}, type, {{shard}}, {{parts.front()}},
              StreamKind::tensor);
  for (std::size_t turn = 1; turn < parts.size(); ++turn)
    builder_.op(name + ".pass_on." + std::to_string(turn),
                PointToPoint{{{true, Axis::tensor, -1, 0, n}, {false, Axis::tensor, 1, 0, n}}}, type,
                {{parts[turn - 1]}}, {{parts[turn]}}, StreamKind::tensor);
  arrives_.insert(whole);
  return whole;
}

// Each part goes to the rank whose rows these are; theirs of ours come meanwhile.
BufferId SequenceParallel::sum_of_turns(const std::string& name, BufferId partial, std::int64_t width, BufferId shard) {
  const std::vector<BufferId>& parts = turns(partial);
  const std::int64_t n = context_.local_tokens * width;
  std::vector<BufferId> received;
  for (std::size_t turn = 1; turn < parts.size(); ++turn) {
    const int steps = static_cast<int>(turn);
    received.push_back(builder_.workspace(builder_.here(name + ".from_turn" + std::to_string(turn)), context_.compute,
                                          {context_.local_tokens, width}));
    builder_.op(name + ".to_turn" + std::to_string(turn),
                PointToPoint{{{true, Axis::tensor, steps, 0, n}, {false, Axis::tensor, -steps, 0, n}}},
                context_.compute, {{parts[turn]}}, {{received.back()}}, StreamKind::tensor);
  }
  // One kernel that reads all of them: the last addition, and what those before it read.
  for (std::size_t i = 0; i + 1 < received.size(); ++i) {
    builder_.op(name + ".sum", Elementwise{ElementwiseFn::accumulate, n}, context_.compute,
                {{received[i]}, {parts.front()}}, {{parts.front()}});
    builder_.takes_no_kernel({n * size_of(context_.compute), 0});
  }
  builder_.op(name + ".sum", Elementwise{ElementwiseFn::add, n}, context_.compute, {{received.back()}, {parts.front()}},
              {{shard}});
  return shard;
}

void SequenceParallel::copy(const std::string& name, BufferId from, BufferId to) {
  const program::Buffer& b = builder_.buffer(to);
  builder_.op(name, Elementwise{ElementwiseFn::copy, b.elements()}, b.dtype, {{from}}, {{to}});
}

BufferId SequenceParallel::reduce_scatter(const std::string& name, BufferId partial, std::int64_t width,
                                          BufferId shard) {
  if (shard < 0)
    shard = builder_.workspace(builder_.here(name + ".scattered"), context_.compute, {context_.local_tokens, width});
  if (made_.contains(partial)) return sum_of_turns(name, partial, width, shard);
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
