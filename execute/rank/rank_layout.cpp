// See rank_layout.h.
#include "execute/rank/rank_layout.h"

#include <algorithm>
#include <set>

#include "execute/rank/run.h"

namespace rehearse::execute {

RankLayout::RankLayout(const Run& run, int rank) : run_(run), rank_(rank), timeline_(run.timeline(rank)) {
  for (const program::Buffer& b : timeline_.role->buffers) {
    const std::int64_t place = run.grid.position(rank, b.shard_axes);
    const std::int64_t part = b.parts > 0 ? (place + b.turn) % b.parts : place;
    shift_.push_back(b.is_view() ? (b.offset + part * b.shard_stride) * size_of(b.dtype) : 0);
  }
  for (const program::Group& g : run.program.groups)
    members_.push_back(run.grid.members(rank, g.axes, g.pipeline_only, g.tensor_block));
}

std::int64_t RankLayout::offset(std::size_t place) const {
  const Place& p = timeline_.places[place];
  return p.offset + shift_[static_cast<std::size_t>(p.buffer)];
}

kernels::Out RankLayout::operand(const RankMemory& memory, std::size_t place) const {
  const auto buffer = static_cast<std::size_t>(timeline_.places[place].buffer);
  return {memory.at(offset(place)), timeline_.role->buffers[buffer].dtype};
}

std::int64_t RankLayout::first_sequence(const Instance& i) const {
  const plan::Plan& p = run_.scenario.plan;
  const std::int64_t micro_batch = std::max(0, timeline_.slot(i).micro_batch + timeline_.op(i).micro_batch_delta);
  return (run_.grid.position(rank_, {Axis::expert, Axis::data, Axis::replica}) *
              run_.scenario.training.micro_batches(p) +
          micro_batch) *
         p.micro_batch;
}

std::vector<int> RankLayout::others(const Instance& i) const {
  const program::Op& op = timeline_.op(i);
  std::set<int> ranks;
  if (const auto* c = std::get_if<program::Collective>(&op.shape))
    ranks.insert(members(c->group).begin(), members(c->group).end());
  if (const auto* p = std::get_if<program::PointToPoint>(&op.shape))
    for (const program::Leg& leg : p->legs) ranks.insert(run_.grid.peer(rank_, leg.axis, leg.offset));
  ranks.erase(rank_);
  return {ranks.begin(), ranks.end()};
}

}  // namespace rehearse::execute
