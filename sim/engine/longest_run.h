// How long a simulation may be.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "sim/base/diagnostics.h"
#include "sim/base/units.h"

namespace rehearse::engine {

// Half of what a Time holds: what happens next may be as far away again.
inline constexpr Time kLatest = Time::from_ps(INT64_MAX / 2);

// Throws InputError where the clock of a simulation has passed that.
inline void require_countable(Time now) {
  if (now <= kLatest) return;
  throw InputError(Diagnostic{
      "", 0, 0, "",
      fmt::format("the simulated time passes {}, the longest this program counts in picoseconds", format_time(kLatest)),
      "simulate fewer --steps, or look at the costs: is a step meant to take so long?"});
}

}  // namespace rehearse::engine
