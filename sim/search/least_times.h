// What kernels and transfers of a rank's program take alone, for bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"
#include "sim/program/work.h"

namespace rehearse::search {

// What transfers of a role take alone, asked once a kind, group and size: the least of what they take on `ranks`, since
// stages that share a role need not lie alike in their nodes and fabric.
class TransferTimes {
 public:
  TransferTimes(const program::Program& program, const plan::RankGrid& grid, std::vector<int> ranks,
                const collective::CollectiveModel& collectives)
      : program_(program), grid_(grid), ranks_(std::move(ranks)), collectives_(collectives) {}

  std::int64_t collective(const program::Op& op, const program::Collective& c) {
    const std::int64_t bytes = program::collective_bytes(op);
    std::set<std::vector<int>> asked;  // several of the ranks may be members of one group
    const auto ask = [&](int rank) {
      const std::vector<int> members = members_of(c, rank);
      if (!asked.insert(members).second) return INT64_MAX;
      if (c.parts < 0 && c.to.experts == 0) return collectives_.collective(c.kind, members, Bytes(bytes)).alone().ps();
      std::vector<Bytes> parts = program::part_bytes(program_, c.parts, bytes, members.size());
      return collectives_.exchange(members, {std::move(parts), c.back, c.to}).alone().ps();
    };
    const auto [known, added] =
        collective_.try_emplace({static_cast<int>(c.kind), c.group, bytes, c.parts, c.back, c.to.per_token}, 0);
    if (added) known->second = least(ask);
    return known->second;
  }

  // A leg, from when both sides are there. A buffered message's sender goes on after its copy, and its receiver may
  // find it there.
  std::int64_t leg(const program::Op& op, const program::Leg& leg) {
    const std::int64_t bytes = program::leg_bytes(op, leg);
    const auto [known, added] = message_.try_emplace({static_cast<int>(leg.axis), leg.offset, bytes, leg.send}, 0);
    const auto ask = [&](int rank) {
      const int peer = grid_.peer(rank, leg.axis, leg.offset);
      return message(leg.send ? rank : peer, leg.send ? peer : rank, bytes, leg.send);
    };
    if (added) known->second = least(ask);
    return known->second;
  }
  // The longest of its legs.
  std::int64_t messages(const program::Op& op, const program::PointToPoint& legs) {
    std::int64_t longest = 0;
    for (const program::Leg& one : legs.legs) longest = std::max(longest, leg(op, one));
    return longest;
  }

  bool between_stages(const program::Collective& c) const {
    const auto& axes = program_.groups[static_cast<std::size_t>(c.group)].axes;
    return grid_.size(Axis::pipeline) > 1 && std::find(axes.begin(), axes.end(), Axis::pipeline) != axes.end();
  }

 private:
  template <class Ask>
  std::int64_t least(const Ask& ask) const {
    std::int64_t found = INT64_MAX;
    for (const int rank : ranks_) found = std::min(found, ask(rank));
    return found;
  }
  std::vector<int> members_of(const program::Collective& c, int rank) const {
    const program::Group& group = program_.groups[static_cast<std::size_t>(c.group)];
    return grid_.members(rank, group.axes, group.pipeline_only, group.tensor_block);
  }
  std::int64_t message(int from, int to, std::int64_t bytes, bool send) const {
    const collective::TransferPlan plan = collectives_.send(from, to, Bytes(bytes));
    if (collectives_.buffered_messages()) return (send ? plan.copy_out : plan.copy_in).ps();
    return plan.alone().ps();
  }

  const program::Program& program_;
  const plan::RankGrid& grid_;
  const std::vector<int> ranks_;
  const collective::CollectiveModel& collectives_;
  std::map<std::tuple<int, program::GroupId, std::int64_t, std::int32_t, bool, std::int64_t>, std::int64_t> collective_;
  std::map<std::tuple<int, std::int32_t, std::int64_t, bool>, std::int64_t> message_;
};

// What a kernel takes at least. Of packed documents attention takes as long as a rank's own are, which may be next to
// nothing.
inline std::int64_t kernel_time(const cost::CostModel& costs, const program::Role& role, const program::Op& op) {
  if (const auto* attention = std::get_if<program::Attention>(&op.shape);
      attention != nullptr && attention->document > 0)
    return 0;
  return costs.kernel(role, op, {}).duration.ps();
}

}  // namespace rehearse::search
