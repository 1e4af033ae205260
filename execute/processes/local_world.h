// All ranks in this process.
#pragma once

#include <chrono>
#include <memory>

#include "execute/processes/world.h"

namespace rehearse::execute {

// `timeout`: how long a rank waits for others in a transfer.
std::unique_ptr<World> make_local_world(int ranks, std::chrono::milliseconds timeout);

}  // namespace rehearse::execute
