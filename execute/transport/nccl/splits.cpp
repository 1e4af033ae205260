// See splits.h. Everything is made from program and grid alone, in the order of roles, bodies and ranks, so that all
// ranks find the same.
#include "execute/transport/nccl/splits.h"

#include <algorithm>
#include <set>

#include "sim/base/check.h"

namespace rehearse::execute::nccl {
namespace {

template <class Visit>
void for_each_op(const program::Program& program, Visit visit) {
  for (const program::Role& role : program.roles)
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops) visit(role, op);
}

// The groups of all ranks, each once, in the order of their first ranks.
Split parts_of(const plan::RankGrid& grid, const std::vector<Axis>& axes, const std::vector<int>& pipeline_only = {},
               int tensor_block = 0) {
  Split split;
  std::set<int> seen;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (seen.contains(rank)) continue;
    const Part part = grid.members(rank, axes, pipeline_only, tensor_block);
    if (std::find(part.begin(), part.end(), rank) == part.end()) continue;
    seen.insert(part.begin(), part.end());
    split.push_back(part);
  }
  return split;
}

}  // namespace

Splits::Splits(const program::Program& program, const plan::RankGrid& grid) : ranks_(grid.ranks()) {
  add_groups(program, grid);
  add_messages(program, grid);
}

// Groups of the same ranks keep communicators of their own: one group is one queue.
void Splits::add_groups(const program::Program& program, const plan::RankGrid& grid) {
  std::set<program::GroupId> used;
  for_each_op(program, [&](const program::Role&, const program::Op& op) {
    if (const auto* c = std::get_if<program::Collective>(&op.shape)) used.insert(c->group);
  });
  for (const program::GroupId id : used) {
    const program::Group& g = program.groups[static_cast<std::size_t>(id)];
    Split split = parts_of(grid, g.axes, g.pipeline_only, g.tensor_block);
    if (std::all_of(split.begin(), split.end(), [](const Part& part) { return part.size() == 1; })) continue;
    splits_.push_back(std::move(split));
    groups_[id] = splits_.size() - 1;
  }
}

void Splits::add_messages(const program::Program& program, const plan::RankGrid& grid) {
  std::set<Axis> together;
  for_each_op(program, [&](const program::Role&, const program::Op& op) {
    const auto* p = std::get_if<program::PointToPoint>(&op.shape);
    if (p != nullptr && p->legs.size() > 1)
      for (const program::Leg& leg : p->legs) together.insert(leg.axis);
  });
  REHEARSE_CHECK(together.size() <= 1, "sends along several axes that start together");
  for (const Axis axis : together) add_axis(grid, axis);

  std::set<std::tuple<int, int, int>> pairs;
  for_each_op(program, [&](const program::Role& role, const program::Op& op) {
    const auto* p = std::get_if<program::PointToPoint>(&op.shape);
    if (p == nullptr) return;
    for (const program::Leg& leg : p->legs)
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        if (grid.coordinate(rank, Axis::pipeline) != role.pipeline || !leg.send) continue;
        pairs.insert({rank, grid.peer(rank, leg.axis, leg.offset), leg.channel});
      }
  });
  for (const auto& [from, to, channel] : pairs)
    if (!shared_.contains({from, to})) add_pair(from, to, channel);
}

void Splits::add_axis(const plan::RankGrid& grid, Axis axis) {
  splits_.push_back(parts_of(grid, {axis}));
  const std::size_t index = splits_.size() - 1;
  for (const Part& part : splits_.back())
    for (const int from : part)
      for (const int to : part) shared_[{from, to}] = index;
}

void Splits::add_pair(int from, int to, int channel) {
  auto& candidates = open_[channel];
  const auto a = static_cast<std::size_t>(from), b = static_cast<std::size_t>(to);
  auto fits =
      std::find_if(candidates.begin(), candidates.end(), [&](const auto& c) { return !c.second[a] && !c.second[b]; });
  if (fits == candidates.end()) {
    splits_.emplace_back();
    fits =
        candidates.insert(candidates.end(), {splits_.size() - 1, std::vector<bool>(static_cast<std::size_t>(ranks_))});
  }
  fits->second[a] = fits->second[b] = true;
  splits_[fits->first].push_back({from, to});
  pairs_[{from, to, channel}] = fits->first;
}

std::optional<std::size_t> Splits::of_group(program::GroupId group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return {};
  return found->second;
}

std::optional<std::size_t> Splits::of_message(int from, int to, int channel) const {
  if (const auto shared = shared_.find({from, to}); shared != shared_.end()) return shared->second;
  const auto found = pairs_.find({from, to, channel});
  if (found == pairs_.end()) return {};
  return found->second;
}

std::optional<Place> place_in(const Split& split, int rank) {
  for (const Part& part : split)
    if (const auto found = std::find(part.begin(), part.end(), rank); found != part.end())
      return Place{&part, static_cast<int>(found - part.begin())};
  return {};
}

}  // namespace rehearse::execute::nccl
