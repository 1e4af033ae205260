// Which single change of a plan would make it fit in memory. Memory follows from the lowered program alone, so
// candidates are lowered and walked, never simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"

namespace rehearse::run {

struct Change {
  std::string assignment;       // "plan.recompute=full", as --set takes it
  std::int64_t peak_bytes = 0;  // of the stage that then needs most
  bool fits = false;
};

// `assignments`: those the scenario was read with; a candidate is read with one more, so it is checked like any plan.
// `cpu`: the device is a CPU (frameworks hold no memory of their own there). The first candidate that fits, in the
// order of what it costs (see fit.cpp); if none does, the one that needs least; nullopt if no candidate is a plan that
// can be.
std::optional<Change> change_that_fits(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                       const std::string& data_root, std::int64_t capacity_bytes, bool cpu);

}  // namespace rehearse::run
