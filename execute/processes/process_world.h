// One rank a process, of one machine or several: numbers, losses and accounts go over Gloo (wire.h), what the ranks
// know of one another without asking is on a board (status_board.h) in the rendezvous folder. Once all have found one
// another the root empties the folder.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "execute/processes/identity.h"
#include "execute/processes/world.h"

namespace rehearse::execute {

struct GlooOptions {
  int rank = 0, ranks = 1;
  std::string folder;     // the rendezvous: the same for all ranks of the run, and of no other
  std::string interface;  // network interface; empty: the loopback, for ranks of one machine
  std::chrono::milliseconds timeout{60'000};
  bool control_only = false;  // no Communicator: numbers go another way; needs no Gloo
  Identity identity;          // ours; must be that of all others
  bool supervised = false;    // started by start_ranks(), which tells the user of failures
};

// Whether this program was built with Gloo.
bool gloo_available();

// Waits for the other ranks. Throws InputError if the folder cannot be used, RankFailure if a rank does not come within
// the timeout or dies before all are connected, RanksDiffer if their identities are not the same.
std::unique_ptr<World> make_gloo_world(const GlooOptions& options);

// Throws InputError if this machine has no network interface of that name with an address.
void check_interface(const std::string& name);

}  // namespace rehearse::execute
