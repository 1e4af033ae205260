// When the ranks of a group came to their collective calls, as far as ranks know that of one another without a message.
#pragma once

#include <cstdint>
#include <optional>

#include "execute/transport/communicator.h"

namespace rehearse::execute {

class Arrivals {
 public:
  virtual ~Arrivals() = default;
  virtual bool same_machine(int rank) const = 0;  // as our own process: its steady clock is ours
  // This rank makes call number `sequence` of a group's collectives.
  virtual void arrive(program::GroupId group, std::int64_t sequence, Clock::time_point when) = 0;
  // When a rank made it, if that is known.
  virtual std::optional<Clock::time_point> arrival(int rank, program::GroupId group, std::int64_t sequence) const = 0;
};

}  // namespace rehearse::execute
