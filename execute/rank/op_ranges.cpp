// See op_ranges.h.
#include "execute/rank/op_ranges.h"

#include <fmt/format.h>

namespace rehearse::execute {

std::string range_name(const Timeline& timeline, int rank, const Instance& i) {
  return fmt::format("rank {}/slot {}/{}/{}", rank, i.slot,
                     timeline.role->bodies[static_cast<std::size_t>(i.body)].name, timeline.op(i).name);
}

}  // namespace rehearse::execute
