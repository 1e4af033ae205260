// What a GPU was like while it performed: its state (kernels/device_state.h) asked for ten times a second by a thread
// of its own, since a question takes up to milliseconds and must hold up neither the issuing thread nor the watch.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "execute/rank/rank.h"
#include "kernels/device_state.h"

namespace rehearse::execute {

class StateLog {
 public:
  // `read` is called until end(), once at least. Where the first state is not known, never again.
  explicit StateLog(std::function<kernels::DeviceState()> read);
  ~StateLog();
  StateLog(const StateLog&) = delete;
  StateLog& operator=(const StateLog&) = delete;

  void end();
  DeviceConditions conditions() const;  // after end()

 private:
  void run();

  const std::function<kernels::DeviceState()> read_;
  std::vector<kernels::DeviceState> states_;  // of the thread, until it is joined
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// Clocks and power are medians of the later half of the states: power is a mean of the last second, so the first
// states of a short run are of before it. The least clock, the highest temperature and the reasons for holding the
// clock back (but idleness) are of all states. `samples` counts all; 0: nothing is known.
DeviceConditions conditions_of(const std::vector<kernels::DeviceState>& states);

}  // namespace rehearse::execute
