// rehearse execute --ranks mpi: the process as one of a job of mpirun or srun, of which only the root speaks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "execute/processes/mpi/mpi_world.h"
#include "sim/plan/scenario.h"

namespace rehearse::cli {

// Does `work`, which returns the exit status, as one process of a job; what it throws leaves only the root's. `session`
// must live until all has been said to the user: the others wait for its end, lest the job be ended for their exit
// status while the root still speaks. Without a launcher nothing is started.
int as_mpi_process(std::shared_ptr<execute::MpiSession>& session, std::chrono::milliseconds timeout,
                   const std::function<int()>& work);

// The run of `scenario`. Throws InputError if the job has another number of ranks, or if there is none.
std::unique_ptr<execute::World> make_mpi_world(execute::MpiSession* session, const plan::Scenario& scenario,
                                               std::chrono::milliseconds timeout, const execute::Identity& identity);

}  // namespace rehearse::cli
