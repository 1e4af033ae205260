// What transfers take from the devices they run on, as small integers. A state is the sum of what is held on a rank:
// SMs from launch to end, memory bandwidth while bytes move. Few differ in a run, so states are interned, and the state
// reached by adding or removing a known hold is a table look-up.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/ids.h"

namespace rehearse::engine {

using StateId = Id<struct StateTag>;
using HoldId = Id<struct HoldTag>;
inline constexpr StateId kAlone{0};  // nothing is held
inline constexpr HoldId kHoldsNothing{0};

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
  const cost::Interference& value(StateId state) const { return states_[state]; }

 private:
  StateId step(StateId state, HoldId hold, int removing) {
    if (hold == kHoldsNothing) return state;
    const StateId known = next_[place(state, hold, removing)];
    return known.exists() ? known : find(state, hold, removing);
  }
  std::size_t place(StateId state, HoldId hold, int removing) const {
    return (state.index() << row_bits_) + hold.index() * 2 + static_cast<std::size_t>(removing);
  }
  StateId find(StateId state, HoldId hold, int removing);
  StateId intern(const cost::Interference& value);

  IdVector<StateId, cost::Interference> states_;
  IdVector<HoldId, cost::Interference> holds_;
  std::map<cost::Interference, StateId> ids_;
  int row_bits_ = 4;
  std::vector<StateId> next_;  // rows of 2^row_bits_ a state: [hold * 2 + removing], none: unknown
};

}  // namespace rehearse::engine
