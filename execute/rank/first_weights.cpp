// See first_weights.h.
#include "execute/rank/first_weights.h"

#include <algorithm>
#include <map>

#include "execute/rank/initial_values.h"
#include "sim/base/half.h"
#include "sim/base/in_parallel.h"

namespace rehearse::execute {

FirstWeights::FirstWeights(const Run& run, int rank)
    : run_(run), rank_(rank), messages_(account::first_messages(run.scenario, run.program, *run.timeline(rank).role)) {}

std::int64_t FirstWeights::calls(program::GroupId group) const {
  std::int64_t calls = 0;
  for (const auto& message : messages_) calls += std::count(message.groups.begin(), message.groups.end(), group);
  return calls;
}

std::set<program::BufferId> FirstWeights::parameters() const {
  std::set<program::BufferId> all;
  for (const auto& message : messages_)
    for (const auto& part : message.parts) all.insert(part.parameter);
  return all;
}

bool FirstWeights::draws(const account::FirstMessage& message) const {
  return std::all_of(message.groups.begin(), message.groups.end(), [&](program::GroupId id) {
    const program::Group& g = run_.program.groups[static_cast<std::size_t>(id)];
    return run_.grid.members(rank_, g.axes, g.pipeline_only, g.tensor_block).front() == rank_;
  });
}

std::vector<float> FirstWeights::drawn(const account::FirstMessage& message) const {
  std::vector<float> values(static_cast<std::size_t>(message.elements));
  in_parallel(run_.threads_per_rank, message.parts.size(), [&](std::size_t p) {
    const account::FirstMessage::Part& part = message.parts[p];
    const program::Buffer& b = run_.timeline(rank_).role->buffers[static_cast<std::size_t>(part.parameter)];
    draw_part(b, run_.grid.coordinate(rank_, Axis::tensor), run_.scenario.training.seed, 0, b.elements(),
              values.data() + part.offset, run_.grid.position(rank_, b.init.spread));
  });
  return values;
}

void FirstWeights::distribute(const Broadcast& broadcast, const Keep& keep) const {
  const InitialMemory initial(run_.timeline(rank_), run_.grid, rank_, run_.scenario.training.seed);
  std::map<program::BufferId, std::vector<const InitialMemory::Block*>> blocks;
  for (const InitialMemory::Block& block : initial.blocks()) blocks[block.buffer].push_back(&block);
  for (const account::FirstMessage& message : messages_) {
    std::vector<std::byte> sent(static_cast<std::size_t>(message.elements * size_of(message.type)));
    if (draws(message)) from_float(message.type, drawn(message).data(), message.elements, sent.data());
    for (const program::GroupId group : message.groups) broadcast(group, {sent.data(), message.type}, message.elements);
    std::vector<float> values(static_cast<std::size_t>(message.elements));
    to_float(message.type, sent.data(), message.elements, values.data());
    for (const account::FirstMessage::Part& part : message.parts)
      for (const InitialMemory::Block* block : blocks[part.parameter])
        keep(*block, values.data() + part.offset + block->first);
  }
}

}  // namespace rehearse::execute
