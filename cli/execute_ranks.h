// How the ranks of `rehearse execute` come about: as threads of this process, or as processes that a launcher started
// (torchrun, srun, mpirun, a script that sets RANK and WORLD_SIZE) or that we start.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "execute/performer.h"
#include "execute/processes/identity.h"
#include "execute/processes/mpi/mpi_world.h"
#include "execute/processes/world.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::cli {

struct RanksRequest {
  std::string how;                    // local, gloo, mpi, nccl; empty: local, or nccl on GPUs
  std::string rendezvous, interface;  // empty: as the environment says
  std::chrono::milliseconds timeout{60'000};
  execute::Identity identity;                // of this process, if there are others
  std::shared_ptr<execute::MpiSession> mpi;  // of as_mpi_process(); null: none was started
};

// Whether this process is to be one of several that train together.
bool among_processes(const RanksRequest& request, bool cuda, const plan::Scenario& scenario);

// Throws InputError if a launcher started this process as one of several, each of which would do all of `command`.
void refuse_launcher(const std::string& command);

// What this process is about to do, for comparison with the others.
execute::Identity identity_of(const plan::Scenario& scenario, const execute::Options& options, bool cuda);

// The world this process belongs to; null if its processes are still to be started, by start_processes(). Throws
// InputError for options or an environment that do not fit, RankFailure if a rank does not come.
std::unique_ptr<execute::World> make_world(const RanksRequest& request, const plan::Scenario& scenario);

// Checks all that can be checked before, then starts this command once a rank; returns the exit status. Throws
// InputError, DoesNotFit, RankFailure, Interrupted.
// After the checks `begin` is called; `variables` are a rank's, beside those of start_ranks.h.
int start_processes(const plan::Scenario& scenario, const program::Program& program, const execute::Options& options,
                    const std::function<void()>& begin = {},
                    const std::function<std::vector<std::pair<std::string, std::string>>(int rank)>& variables = {});

}  // namespace rehearse::cli
