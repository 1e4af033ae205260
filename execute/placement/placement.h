// What performs a run's ranks, and how they come about: on the CPU as threads of this process, or as processes over
// Gloo or MPI; on GPUs as processes joined by NCCL. Processes were started by a launcher (torchrun, srun, mpirun, a
// script that sets RANK and WORLD_SIZE), or this process starts them.
//
// The order of calls: a Placement decides on the device; join() gives the world this process belongs to, in which
// perform() runs with what make_ranks() returns; without a world start() starts this command once a rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "execute/performer.h"
#include "execute/placement/devices.h"
#include "execute/processes/mpi/mpi_world.h"
#include "execute/processes/start_ranks.h"
#include "execute/processes/world.h"
#include "execute/rank/rank.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::execute {

struct PlacementRequest {
  std::string device = "auto", graphs = "auto";  // auto, cpu, cuda; auto, on, off
  std::string products = "first";                // first, measured: GpuOptions::measure_products
  std::string attention = "own";                 // own, cudnn: GpuOptions::library_attention
  std::string ranks;                             // local, gloo, mpi, nccl; empty: local, or nccl on GPUs
  std::string rendezvous, interface;             // empty: as the environment says
  std::chrono::milliseconds timeout{60'000};
  int max_restarts = 0;             // how often start() starts all again after a failure, from the last checkpoint
  bool as_simulated = false;        // parameter servers do what they do in the simulation
  std::string version;              // of this program, which must be that of all processes
  std::shared_ptr<MpiSession> mpi;  // null: none was started
  std::function<void(const std::string& text)> note;  // for the user, besides what is thrown
};

using MakeProgram = std::function<program::Program()>;

class Placement {
 public:
  // Ranks are on GPUs if that is asked for; of themselves if this machine has one, the scenario's cluster is not this
  // machine itself (topology local) and no other kind of ranks is asked for. Throws InputError for what cannot be. The
  // scenario outlives it.
  Placement(PlacementRequest request, const plan::Scenario& scenario);

  // The world this process belongs to; null if its processes are still to be started. `lower` makes the scenario's
  // program. Throws InputError for options or an environment that do not fit, RankFailure if a rank does not come,
  // RanksDiffer if the processes are not about to do the same.
  std::unique_ptr<World> join(const Options& options, const MakeProgram& lower) const;
  // What makes the ranks of this process, for Options::maker; null: the Performer itself, on the CPU.
  std::unique_ptr<RankMaker> make_ranks(World& world) const;

  // Checks all that can be checked before, then starts this command once a rank; returns the exit status. Throws
  // InputError, DoesNotFit, RankFailure, and what Options::poll throws.
  int start(const program::Program& program, const Options& options) const;

 private:
  int start_once(const StartOptions& start, int restarts) const;
  bool on_gpus() const { return gpus_.has_value(); }

  const PlacementRequest request_;
  const plan::Scenario& scenario_;
  std::optional<Devices> gpus_;
};

// Starts ranks, whose number of restarts it hands over, until they end well; again after a RankFailure, which it notes
// with the step of the folder's last checkpoint that a run of so many steps goes on from, at most `restarts` times,
// then throws it on. Returns what `start` does.
struct StartAgain {
  std::string folder;
  std::int64_t steps = 0;
  int restarts = 0;
  std::function<void(const std::string& text)> note;
};
int start_again(const StartAgain& how, const std::function<int(int restarts)>& start);

// Throws InputError if a launcher started this process as one of several, each of which would do all of `command`.
void refuse_launcher(const std::string& command);

// As how many ranks a launcher, or start(), says that it has started this command; 0: none did.
int launched_ranks();

// Whether a launcher that goes with MPI (mpirun, srun) started this process as one of several.
bool launched_for_mpi();

// Makes `session` this process's part in the job of an MPI launcher; leaves it if nobody launched it. Throws InputError
// if the launcher knows of another number of processes than MPI (at the root), or as start_mpi(). The session must live
// until all has been said to the user: the others wait for its end, lest the job be ended for their exit status while
// the root still speaks.
void join_mpi_job(std::shared_ptr<MpiSession>& session, std::chrono::milliseconds timeout);

}  // namespace rehearse::execute
