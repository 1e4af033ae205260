// Instead of gloo_wire.cpp where Gloo was not found.
#include "execute/transport/gloo/gloo_wire.h"
#include "sim/base/check.h"

namespace rehearse::execute {

bool gloo_available() {
  return false;
}

std::unique_ptr<Wire> make_gloo_wire(const WireOptions&, const Stop&, std::function<void(int)>) {
  throw InternalError("built without Gloo");
}

void check_interface(const std::string&) {}

}  // namespace rehearse::execute
