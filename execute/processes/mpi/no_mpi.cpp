// Instead of the rest of this folder where MPI was not found.
#include "execute/processes/mpi/mpi_world.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {

bool mpi_available() {
  return false;
}

std::unique_ptr<MpiSession> start_mpi(std::chrono::milliseconds) {
  throw InputError(Diagnostic{"", 0, 0, "--ranks mpi", "this program was built without MPI",
                              "install libopenmpi-dev and openmpi-bin and build again"});
}

}  // namespace rehearse::execute
