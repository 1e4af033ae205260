// Which ranks' calls match: the process groups of a program. A collective's is an instance of a Group; a message's has
// two ranks, the sender and the receiver of a channel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/link/calls.h"

namespace rehearse::program {

struct ProcessGroup {
  GroupId group = -1;  // -1: a channel from one rank to another
  int channel = 0;
  Axis axis = Axis::pipeline;  // a channel's
  std::vector<int> ranks;      // in group order; a channel's: sender, receiver
};

class ProcessGroups {
 public:
  // `calls` by role. Every rank must be a member of the groups that it calls on.
  ProcessGroups(const Program& program, const std::vector<RoleCalls>& calls, const GridView& grid);

  // The process group of a rank's sequence (RoleCalls::sequences of its role); -1 if the sequence has no calls.
  std::int32_t of(int rank, std::int32_t sequence) const {
    return ids_[static_cast<std::size_t>(first_[static_cast<std::size_t>(rank)] + sequence)];
  }
  const ProcessGroup& operator[](std::int32_t id) const { return all_[static_cast<std::size_t>(id)]; }
  // By sequence.
  std::span<const std::int32_t> of(int rank) const {
    return {ids_.data() + first_[static_cast<std::size_t>(rank)],
            ids_.data() + first_[static_cast<std::size_t>(rank) + 1]};
  }
  int ranks() const { return static_cast<int>(first_.size()) - 1; }
  std::int32_t size() const { return static_cast<std::int32_t>(all_.size()); }

 private:
  std::vector<ProcessGroup> all_;
  std::vector<std::int32_t> first_, ids_;  // by rank, in ids_; one more at the end
};

}  // namespace rehearse::program
