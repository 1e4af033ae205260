// See process_groups.h. A group's instance is made when its first member comes up, a channel when its first end does.
#include "sim/program/link/process_groups.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::program {

ProcessGroups::ProcessGroups(const Program& program, const std::vector<RoleCalls>& calls, const GridView& grid) {
  std::vector<std::vector<std::int32_t>> instance(program.groups.size());  // by group and rank
  std::map<std::tuple<int, int, int>, std::int32_t> channels;              // sender, receiver, channel
  for (int rank = 0; rank < grid.ranks; ++rank) {
    check_interrupt();
    first_.push_back(static_cast<std::int32_t>(ids_.size()));
    for (const CallSequence& sequence : calls[static_cast<std::size_t>(grid.role(rank))].sequences) {
      std::int32_t& id = ids_.emplace_back(-1);
      if (sequence.per_step == 0) continue;
      if (sequence.group < 0) {
        const int peer = grid.peer(rank, sequence.axis, sequence.offset);
        const int from = sequence.send ? rank : peer, to = sequence.send ? peer : rank;
        const auto [entry, fresh] = channels.try_emplace({from, to, sequence.channel}, size());
        if (fresh) all_.push_back({-1, sequence.channel, sequence.axis, {from, to}});
        id = entry->second;
        continue;
      }
      auto& ids = instance[static_cast<std::size_t>(sequence.group)];
      if (ids.empty()) ids.assign(static_cast<std::size_t>(grid.ranks), -1);
      if (ids[static_cast<std::size_t>(rank)] < 0) {
        const Group& group = program.groups[static_cast<std::size_t>(sequence.group)];
        ProcessGroup made{sequence.group, 0, Axis::pipeline, grid.members(rank, group)};
        REHEARSE_CHECK(std::find(made.ranks.begin(), made.ranks.end(), rank) != made.ranks.end(),
                       "rank {} calls on group {} but is no member", rank, group.name);
        for (const int member : made.ranks) ids[static_cast<std::size_t>(member)] = size();
        all_.push_back(std::move(made));
      }
      id = ids[static_cast<std::size_t>(rank)];
    }
  }
  first_.push_back(static_cast<std::int32_t>(ids_.size()));
}

}  // namespace rehearse::program
