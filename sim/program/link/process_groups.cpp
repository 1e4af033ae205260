// See process_groups.h. A group's instance is made when its first member comes up, a channel when its first end does.
#include "sim/program/link/process_groups.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::program {

ProcessGroups::ProcessGroups(const Program& program, const std::vector<RoleCalls>& calls, const GridView& grid) {
  std::vector<std::vector<std::int32_t>> instance(program.groups.size());  // by group and rank
  // By sender, which has few.
  struct Channel {
    int to, channel;
    std::int32_t id;
  };
  std::vector<std::vector<Channel>> channels(static_cast<std::size_t>(grid.ranks));
  for (int rank = 0; rank < grid.ranks; ++rank) {
    check_interrupt();
    first_.push_back(static_cast<std::int32_t>(ids_.size()));
    for (const CallSequence& sequence : calls[static_cast<std::size_t>(grid.role(rank))].sequences) {
      std::int32_t& id = ids_.emplace_back(-1);
      if (sequence.per_step == 0) continue;
      if (sequence.group < 0) {
        const int peer = grid.peer(rank, sequence.axis, sequence.offset);
        const int from = sequence.send ? rank : peer, to = sequence.send ? peer : rank;
        std::vector<Channel>& own = channels[static_cast<std::size_t>(from)];
        const auto known = std::find_if(own.begin(), own.end(),
                                        [&](const Channel& c) { return c.to == to && c.channel == sequence.channel; });
        id = known != own.end() ? known->id : size();
        if (known != own.end()) continue;
        own.push_back({to, sequence.channel, id});
        all_.push_back({-1, sequence.channel, sequence.axis, {from, to}});
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
