// rehearse execute --ranks mpi: the process as one of a job of mpirun or srun, of which only the root speaks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "execute/processes/mpi/mpi_world.h"

namespace rehearse::cli {

// Does `work`, which returns the exit status, as one process of a job; what it throws leaves only the root's. `session`
// must live until all has been said to the user (execute::join_mpi_job). Without a launcher nothing is started.
int as_mpi_process(std::shared_ptr<execute::MpiSession>& session, std::chrono::milliseconds timeout,
                   const std::function<int()>& work);

// Does `work`, which is not shared among processes, on the first of several that mpirun or srun started, which notes
// that `what` is its answer alone; the others have done theirs. No MPI is needed, for nothing is sent.
int as_first_process(const std::string& what, const std::function<int()>& work);

}  // namespace rehearse::cli
