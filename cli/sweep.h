// rehearse simulate --sweep: every combination of the values listed for some keys, each simulated, side by side.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"
#include "execute/processes/mpi/mpi_world.h"

namespace rehearse::cli {

struct SweepRequest {
  SimulationRequest base;           // the scenario and what every plan has
  std::vector<std::string> sweeps;  // "plan.tensor=1,2,4"; the last varies fastest
  std::string output;               // a directory, if output_given
  bool output_given = false, json = false;
  int threads = 0;  // at once; 0: one a core
  // Of a job of mpirun or srun whose processes share the plans; the root prints. nullptr: this process does all.
  execute::MpiSession* session = nullptr;
};

// Prints a table or JSON in the order of the combinations, whatever the threads; writes sweep.csv and a result
// directory a plan with an output. Returns the exit code: kDone if a plan fits, kDoesNotFit if none does. Combinations
// that cannot be are listed with their reason; if all cannot, throws InputError with the reasons.
int sweep(const SweepRequest& request, const std::string& root);

}  // namespace rehearse::cli
