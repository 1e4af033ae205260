// Which communicators a program needs, so that all ranks make them in one order. Each split divides the world into
// disjoint parts, as ncclCommSplit does; a rank in no part takes part in the call and gets none. A group of collectives
// is one split (its parts: the groups of all ranks). Of sends and receives, every pair of ranks and channel has a
// communicator of its own, so that streams stay as independent as the program has them - NCCL runs what is queued on
// one communicator in the order in which it was queued, whatever the stream; neighbouring pairs share ranks and so go
// into different splits. Only where a program starts sends and receives together, which must be on one communicator,
// all ranks along the axis share one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"

namespace rehearse::execute::nccl {

// Ranks in the order of their numbers within the communicator.
using Part = std::vector<int>;
using Split = std::vector<Part>;

class Splits {
 public:
  Splits(const program::Program& program, const plan::RankGrid& grid);

  const std::vector<Split>& all() const { return splits_; }
  // The split whose part that has the rank is the group's; nothing if the program has no collective on it, or the
  // group is of one rank.
  std::optional<std::size_t> of_group(program::GroupId group) const;
  // For a message from rank to rank on a channel.
  std::optional<std::size_t> of_message(int from, int to, int channel) const;

 private:
  void add_groups(const program::Program& program, const plan::RankGrid& grid);
  void add_messages(const program::Program& program, const plan::RankGrid& grid);
  void add_axis(const plan::RankGrid& grid, Axis axis);
  void add_pair(int from, int to, int channel);

  std::vector<Split> splits_;
  std::map<program::GroupId, std::size_t> groups_;
  std::map<std::tuple<int, int, int>, std::size_t> pairs_;  // from, to, channel
  std::map<int, std::vector<std::pair<std::size_t, std::vector<bool>>>>
      open_;                                           // channel -> splits of pairs, ranks taken
  std::map<std::pair<int, int>, std::size_t> shared_;  // from, to: whatever the channel
  int ranks_ = 0;
};

// Our part of a split and our place in it; nothing if we are in none.
struct Place {
  const Part* part = nullptr;
  int index = 0;
};
std::optional<Place> place_in(const Split& split, int rank);

}  // namespace rehearse::execute::nccl
