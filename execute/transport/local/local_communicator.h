// Ranks that are threads of one process: they meet in shared memory and read one another's buffers directly.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "execute/transport/communicator.h"
#include "execute/transport/stop.h"

namespace rehearse::execute {

// Of ranks 0 .. ranks - 1. `stop` must outlive them. `limit`: how long a wait for other ranks may last.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, std::chrono::milliseconds limit,
                                                                    const Stop& stop);

}  // namespace rehearse::execute
