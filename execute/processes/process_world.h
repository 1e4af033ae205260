// One rank a process, of one machine or several. Losses, accounts and agreements go over a control channel
// (control_channel.h), numbers over Gloo or, of ranks on GPUs, over NCCL; what the ranks of a machine know of one
// another without asking, failures among it, is on a status board (status_board.h) in the rendezvous folder. Once all
// have found one another the root empties the folder.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "execute/processes/identity.h"
#include "execute/processes/world.h"

namespace rehearse::execute {

struct ProcessOptions {
  int rank = 0, ranks = 1;
  std::string folder;     // the rendezvous: the same for all ranks of the run, and of no other
  std::string interface;  // network interface; empty: the loopback, for ranks of one machine
  std::chrono::milliseconds timeout{60'000};
  bool control_only = false;  // no Communicator: numbers go another way; needs no Gloo
  Identity identity;          // ours; must be that of all others
  bool supervised = false;    // started by start_ranks(), which tells the user of failures
};

// Waits for the other ranks. Throws InputError if the folder cannot be used, RankFailure if a rank does not come within
// the timeout or dies before all are connected, RanksDiffer if their identities are not the same.
std::unique_ptr<World> make_process_world(const ProcessOptions& options);

}  // namespace rehearse::execute
