// How the ranks of a run are spread over processes, and what these must tell one another besides the numbers that
// Communicators move: that all are ready, losses, where each rank is, what went wrong, and the accounts at the end.
// perform() is the same over every world: local_world.h has all ranks in this process, process_world.h and
// mpi/mpi_world.h one rank a process.
//
// The order of calls: from_root() perhaps, begin() once before any rank runs; communicators, whereabouts, report_loss
// and failures by the ranks' threads while they run, loss() by the root's main thread; after the ranks here have ended
// gather() if nothing failed, failures().report() in any case. One process is the root: it has rank 0 and gets losses
// and accounts. A wait in begin() or gather() ends as a Communicator's does (WaitEnded). Failures::fail() in one
// process raises stop() in all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "execute/processes/failures.h"
#include "execute/processes/whereabouts.h"
#include "execute/transport/communicator.h"
#include "execute/transport/stop.h"
#include "execute/transport/wire.h"

namespace rehearse::execute {

// Loss `loss` of the `losses` of a step, among those of all steps.
inline std::int64_t loss_item(std::int64_t step, std::size_t loss, std::size_t losses) {
  return step * static_cast<std::int64_t>(losses) + static_cast<std::int64_t>(loss);
}

class World {
 public:
  virtual ~World() = default;

  virtual std::span<const int> here() const = 0;             // ranks of this process, ascending
  virtual std::span<const int> on_this_machine() const = 0;  // ranks that share this machine's memory and cores
  // Whether what Communicators say of arrivals holds: false where ranks on several machines, whose clocks differ, do
  // not tell one another that they have come.
  virtual bool knows_arrivals() const { return true; }
  virtual bool root() const = 0;
  virtual Communicator& communicator(int rank) = 0;  // of a rank here
  // What connects the processes, beside Communicators; nullptr: all ranks are here, or nothing of the kind does.
  virtual Wire* wire() { return nullptr; }
  virtual Stop& stop() = 0;  // of the ranks here

  // Written by a rank's process; of a rank elsewhere the last that is known of it.
  virtual Whereabouts& whereabouts(int rank) = 0;

  // The root's bytes, in every process; before begin(), by all. A wait as in begin().
  virtual std::string from_root(std::string bytes);

  // Waits until every process has come here. The beginning of the run: the same instant in all processes whose clocks
  // are the same.
  virtual Clock::time_point begin() = 0;

  // A rank's part of a step's loss; with several losses a step, item loss_item() is in the place of the step. Never
  // waits.
  virtual void report_loss(std::int64_t step, int rank, double part) = 0;
  // At the root, for step (or item) 0, 1, ... in turn: the parts of `reporters`, added in their order; nothing if they
  // are not all here by kLook from now.
  virtual std::optional<double> loss(std::int64_t step, std::span<const int> reporters) = 0;

  virtual Failures& failures() = 0;

  // At the root the bytes of every process in the order of their first ranks; elsewhere nothing. After it the root no
  // longer needs the others.
  virtual std::vector<std::string> gather(std::string bytes) = 0;
};

}  // namespace rehearse::execute
