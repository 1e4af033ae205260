// Starts this program once a rank, as torchrun would: the same command line, RANK and WORLD_SIZE in the environment and
// a private rendezvous folder. Looks after the processes: a death is seen at once whatever its cause, and however this
// ends - done, failed, interrupted, killed - no process and no file is left.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "execute/processes/whereabouts.h"

namespace rehearse::execute {

// The environment of a started rank, besides RANK, LOCAL_RANK and WORLD_SIZE.
inline constexpr const char* kRendezvousVariable = "REHEARSE_RENDEZVOUS";  // the folder
inline constexpr const char* kSupervisedVariable = "REHEARSE_SUPERVISED";  // "1": start_ranks() tells of failures

bool supervised();  // whether this process was started so

std::vector<std::string> own_command_line();

// Whether a process that ends by this signal was killed or told to end, and did not crash.
bool told_to_end(int signal);

struct StartOptions {
  int ranks = 1;
  // More of a rank's environment: names and values.
  std::function<std::vector<std::pair<std::string, std::string>>(int rank)> variables;
  std::function<void()> poll;  // many times a second; what it throws ends the ranks and is thrown on
  // "rank 3 (stage1) was in ...": of a rank that has ended without saying so itself.
  std::function<std::string(int rank, const Whereabouts& at)> whereabouts_of;
};

// Returns rank 0's exit status, 0 or one with which that rank has said what is wrong (input, memory). Throws
// RankFailure if a rank failed or died. Call it before the process has threads.
int start_ranks(const StartOptions& options);

}  // namespace rehearse::execute
