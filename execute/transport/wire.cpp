// See wire.h.
#include "execute/transport/wire.h"

namespace rehearse::execute {

std::uint64_t make_tag(TagKind kind, std::int64_t queue, std::int64_t sequence, std::int64_t step,
                       std::int64_t segment) {
  const auto bits = [](std::int64_t value, int count) {
    return static_cast<std::uint64_t>(value) & ((std::uint64_t{1} << count) - 1);
  };
  return static_cast<std::uint64_t>(kind) << 61 | bits(queue, 12) << 49 | bits(sequence, 32) << 17 |
         bits(step, 7) << 10 | bits(segment, 10);
}

}  // namespace rehearse::execute
