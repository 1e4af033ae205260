// rehearse execute --ranks mpi: the process as one of a job of mpirun or srun, of which only the root speaks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "execute/processes/mpi/mpi_world.h"

namespace rehearse::cli {

// Does `work`, which returns the exit status, as one process of a job; what it throws leaves only the root's. `session`
// must live until all has been said to the user (execute::join_mpi_job). Without a launcher nothing is started.
int as_mpi_process(std::shared_ptr<execute::MpiSession>& session, std::chrono::milliseconds timeout,
                   const std::function<int()>& work);

}  // namespace rehearse::cli
