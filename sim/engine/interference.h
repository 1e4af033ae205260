// What transfers take from the devices they run on, as small integers. A state is the sum of what is held on a rank:
// SMs from launch to end, memory bandwidth while bytes move. Few differ in a run, so states are interned, and the state
// reached by adding or removing a known hold is a table look-up.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/cost/cost.h"

namespace rehearse::engine {

using StateId = std::int32_t;  // 0: nothing held
using HoldId = std::int32_t;   // 0: holds nothing

class InterferenceStates {
 public:
  InterferenceStates();

  HoldId hold(const cost::Interference& what);
  StateId add(StateId state, HoldId hold) { return step(state, hold, 0); }
  StateId remove(StateId state, HoldId hold) { return step(state, hold, 1); }
  // The state with so many cores of the host busy in all.
  StateId with_busy(StateId state, int cores) {
    cost::Interference at = value(state);
    at.busy_cores = cores;
    return intern(at);
  }
  const cost::Interference& value(StateId state) const { return states_[static_cast<std::size_t>(state)]; }

 private:
  StateId step(StateId state, HoldId hold, int removing) {
    if (hold == 0) return state;
    const std::size_t column = static_cast<std::size_t>(hold) * 2 + static_cast<std::size_t>(removing);
    const std::vector<StateId>& row = next_[static_cast<std::size_t>(state)];
    if (column < row.size() && row[column] >= 0) return row[column];
    return find(state, hold, removing);
  }
  StateId find(StateId state, HoldId hold, int removing);
  StateId intern(const cost::Interference& value);

  std::vector<cost::Interference> states_, holds_;
  std::map<cost::Interference, StateId> ids_;
  std::vector<std::vector<StateId>> next_;  // [state][hold * 2 + removing], -1 unknown
};

}  // namespace rehearse::engine
