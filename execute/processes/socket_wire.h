// A Wire of plain TCP sockets, each rank connected with rank 0 alone: for control, where numbers go another way.
#pragma once

#include <functional>
#include <memory>

#include "execute/transport/wire.h"

namespace rehearse::execute {

// Waits for rank 0, and at rank 0 for all others. `lost` is called with a rank whose connection broke and must raise
// `stop`. Throws as make_gloo_wire().
std::unique_ptr<Wire> make_socket_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost);

}  // namespace rehearse::execute
