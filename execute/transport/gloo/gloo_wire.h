// A Wire over Gloo's TCP transport, every rank connected with every other. A build without Gloo has none (no_gloo.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "execute/transport/wire.h"

namespace rehearse::execute {

bool gloo_available();  // built with it

// Connects with all others, which must do the same. `lost` is called with a rank whose connection broke and must raise
// `stop`. Throws WaitEnded if a rank does not come in time or the run is stopped before, std::exception if connections
// cannot be made.
std::unique_ptr<Wire> make_gloo_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost);

// Throws InputError if this machine has no network interface of that name with an address.
void check_interface(const std::string& name);

}  // namespace rehearse::execute
