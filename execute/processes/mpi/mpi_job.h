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

// Of a job's ranks: a file that is there once who started it ends it.
inline constexpr const char* kJobEndVariable = "REHEARSE_JOB_END";

struct MpiJobOptions {
  int ranks = 1;
  std::vector<std::pair<std::string, std::string>> variables;  // of the environment, besides ours
  std::function<void()> poll;  // many times a second; what it throws ends the job and is thrown on
};

// Returns the job's exit status, 0 or one with which the root has said what is wrong (input, memory). Throws
// RankFailure if it ended otherwise: a rank died or failed, or somebody ended mpirun. Ranks that were left have told
// the user.
int start_mpi_job(const MpiJobOptions& options);

// In a rank: whether who started the job is ending it, and tells the user why. Known on its machine.
bool ended_by_its_starter();

}  // namespace rehearse::execute
