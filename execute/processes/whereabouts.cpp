// See whereabouts.h.
#include "execute/processes/whereabouts.h"

#include "sim/program/describe.h"

namespace rehearse::execute {

std::string place_text(const Timeline& timeline, const Whereabouts& at) {
  for (const auto& stream : at.instance) {
    const std::int32_t index = stream.load(std::memory_order_relaxed);
    if (index < 0 || static_cast<std::size_t>(index) >= timeline.instances.size()) continue;
    const Instance& i = timeline.instances[static_cast<std::size_t>(index)];
    return program::place_text(*timeline.role, i.slot, i.op);
  }
  return "";
}

std::string whereabouts_text(const Timeline& timeline, int rank, const Whereabouts& at) {
  const std::string place = place_text(timeline, at);
  return program::rank_text(*timeline.role, rank) + (place.empty() ? " was in no op" : " was in " + place);
}

}  // namespace rehearse::execute
