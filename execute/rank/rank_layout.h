// Where the operands of a rank's ops lie in its arena, and whom its transfers meet: what a rank's coordinates make of
// its role's timeline.
#pragma once

#include <vector>

#include "execute/rank/rank_memory.h"
#include "execute/timeline.h"
#include "kernels/device.h"

namespace rehearse::execute {

struct Run;

class RankLayout {
 public:
  RankLayout(const Run& run, int rank);

  int rank() const { return rank_; }
  const Timeline& timeline() const { return timeline_; }
  // Bytes from the arena's beginning to an operand: Timeline::places[place].
  std::int64_t offset(std::size_t place) const;
  kernels::Out operand(const RankMemory& memory, std::size_t place) const;
  // Of the slot's micro-batch, counted from the step's first.
  std::int64_t first_sequence(const Instance& i) const;
  const std::vector<int>& members(program::GroupId group) const { return members_[static_cast<std::size_t>(group)]; }
  // The other ranks of a transfer, ascending; of a kernel none.
  std::vector<int> others(const Instance& i) const;

 private:
  const Run& run_;
  int rank_;
  const Timeline& timeline_;
  std::vector<std::int64_t> shift_;        // by buffer: bytes from its base instance to the view, for this rank
  std::vector<std::vector<int>> members_;  // by group
};

}  // namespace rehearse::execute
