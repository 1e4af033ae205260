// Starts this command as a job of mpirun, for one who wants it started again when a rank dies: mpirun ends the whole
// job then, and what it started cannot outlive it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace rehearse::execute {

// Names the launcher and its options, "mpirun" unless set: words parted by blanks, as "mpirun --oversubscribe".
inline constexpr const char* kMpirunVariable = "REHEARSE_MPIRUN";

struct MpiJobOptions {
  int ranks = 1;
  std::vector<std::pair<std::string, std::string>> variables;  // of the environment, besides ours
  std::function<void()> poll;  // many times a second; what it throws ends the job and is thrown on
};

// Returns the job's exit status, 0 or one with which the root has said what is wrong (input, memory). Throws
// RankFailure if it ended otherwise: a rank died or failed, of which those that were left have told the user.
int start_mpi_job(const MpiJobOptions& options);

}  // namespace rehearse::execute
