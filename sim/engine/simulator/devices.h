// What transfers hold of the device of each rank: SMs and memory bandwidth, as a state of interference. Kernels look at
// it at the end of an instant, when everybody has taken and given back.
#pragma once

#include <vector>

#include "sim/engine/ids.h"
#include "sim/engine/interference.h"

namespace rehearse::engine {

class Devices {
 public:
  explicit Devices(std::size_t ranks) : devices_(ranks) {}

  StateId state(RankId rank) const { return devices_[rank].state; }
  InterferenceStates& states() { return states_; }
  const InterferenceStates& states() const { return states_; }

  void take(RankId rank, HoldId hold) {
    if (hold != kHoldsNothing) change(rank, states_.add(devices_[rank].state, hold));
  }
  void give_back(RankId rank, HoldId hold) {
    if (hold != kHoldsNothing) change(rank, states_.remove(devices_[rank].state, hold));
  }
  // Calls function(rank, state) for those that something has been taken from or given back to since the last time.
  template <class Function>
  void for_changed(Function&& function) {
    for (const RankId rank : changed_) {
      Device& device = devices_[rank];
      device.changed = false;
      function(rank, device.state);
    }
    changed_.clear();
  }

 private:
  struct Device {
    StateId state = kAlone;
    bool changed = false;
  };
  void change(RankId rank, StateId state) {
    Device& device = devices_[rank];
    device.state = state;
    if (device.changed) return;
    device.changed = true;
    changed_.push_back(rank);
  }

  InterferenceStates states_;
  IdVector<RankId, Device> devices_;
  std::vector<RankId> changed_;
};

}  // namespace rehearse::engine
