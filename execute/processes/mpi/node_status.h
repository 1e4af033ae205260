// What the ranks of a run that share a machine see of one another without a message, in memory shared by MPI: where
// each is, whether its process still runs, and when it last gave a sign of life. Ranks elsewhere are strangers to it.
#pragma once

#include <mpi.h>

#include <chrono>
#include <span>
#include <vector>

#include "execute/processes/whereabouts.h"
#include "execute/transport/communicator.h"

namespace rehearse::execute {

class NodeStatus {
 public:
  // Every rank of `world` makes one at the same time. The memory lives until MPI ends.
  explicit NodeStatus(MPI_Comm world);

  std::span<const int> ranks() const { return ranks_; }  // that are on it, ascending; ours among them
  bool on_it(int rank) const { return slots_[static_cast<std::size_t>(rank)] != nullptr; }
  // Of a rank elsewhere: one that says nothing.
  Whereabouts& whereabouts(int rank) const;

  void sign_of_life() const;
  // Ranks that have given no sign of life for so long: stopped, or starved of cores.
  std::vector<int> silent_for(std::chrono::milliseconds time) const;
  // Ranks whose process is gone.
  std::vector<int> dead() const;
  MPI_Comm comm() const { return node_; }  // of its ranks

 private:
  struct Slot;

  int rank_ = 0;
  MPI_Comm node_ = MPI_COMM_NULL;
  std::vector<int> ranks_;
  std::vector<Slot*> slots_;  // by rank; nullptr: on another machine
  mutable std::vector<Whereabouts> elsewhere_;
};

}  // namespace rehearse::execute
