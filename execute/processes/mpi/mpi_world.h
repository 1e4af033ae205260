// A rank a process, started by mpirun or by srun with MPI. An MpiSession is the process's part in the job, from before
// anything of a run can fail until after its last word to the user; a World is one run in it. Built without MPI
// (no_mpi.cpp), nothing can be started.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "execute/processes/identity.h"
#include "execute/processes/world.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"

namespace rehearse::execute {

class MpiSession {
 public:
  // Ends MPI: waits until every process has come here; after a failed run ends the whole job at once.
  virtual ~MpiSession() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // The run of `program`; one a session, which must outlive it. Waits for the other processes. Throws RankFailure if
  // they do not come, RanksDiffer if their identities are not ours. Processes beyond the grid's ranks are in none of
  // its groups; where there are any, the World has a Wire.
  virtual std::unique_ptr<World> make_world(const program::Program& program, const plan::RankGrid& grid,
                                            std::chrono::milliseconds timeout, const Identity& identity) = 0;
  // Instead of a run: work that processes share, under way from begin_work() until gather(), by which each hands the
  // root what it has done. The root gets it in order of ranks, the others nothing. A process that dies meanwhile is a
  // failure, of which failed() tells the others. gather() throws RankFailure: at the root with what happened, or who
  // has not come within `limit`.
  // Before that they may trade() any number of times, all alike: each gets what all have, in order of ranks, as soon as
  // all have come; what happens instead as in gather().
  virtual void begin_work() = 0;
  virtual bool failed() const = 0;
  virtual std::vector<std::string> trade(std::string bytes, std::chrono::milliseconds limit) = 0;
  virtual std::vector<std::string> gather(std::string bytes, std::chrono::milliseconds limit) = 0;
  // A process that is not the root, and that cannot go on outside a run, leaves its message to the root. Returns what
  // it has to tell the user itself: nothing, unless the root is gone.
  virtual std::string give_up(const std::string& message) = 0;
};

bool mpi_available();  // built with it

// Waits for the other processes; after `limit` the process ends with a message. Throws InputError if this program was
// built without MPI, or if it is one without MPI_THREAD_MULTIPLE. Once a process.
std::unique_ptr<MpiSession> start_mpi(std::chrono::milliseconds limit);

}  // namespace rehearse::execute
