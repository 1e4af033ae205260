// See world.h.
#include "execute/processes/world.h"

#include "sim/base/check.h"

namespace rehearse::execute {

std::string World::from_root(std::string bytes) {
  REHEARSE_CHECK(root(), "a world whose processes share nothing at the beginning");
  return bytes;
}

}  // namespace rehearse::execute
