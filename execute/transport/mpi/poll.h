// Waiting by looking: MPI moves bytes only while someone calls it, and a wait must see the run's end and deadline.
// Looks often at first, giving the core to whoever wants it, then sleeps between looks, so that more ranks than cores
// get on.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "execute/transport/communicator.h"
#include "execute/transport/stop.h"

namespace rehearse::execute {

class Backoff {
 public:
  void pause() {
    if (looks_ < kEager) {
      ++looks_;
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(2 * nap_, kLongest);
  }

 private:
  static constexpr int kEager = 200;  // looks of about a microsecond
  static constexpr std::chrono::microseconds kLongest{200};
  int looks_ = 0;
  std::chrono::microseconds nap_{10};
};

// Looks until done(). missing() names the ranks waited for. Throws Stopped, or DeadlineError once `limit` has passed
// (zero: never).
template <class Done, class Missing>
void poll_for(const Stop& stop, std::chrono::milliseconds limit, Done done, Missing missing) {
  const Clock::time_point deadline = Clock::now() + limit;
  Backoff backoff;
  while (!done()) {
    if (stop.requested()) throw Stopped(missing());
    if (limit.count() > 0 && Clock::now() >= deadline) throw DeadlineError(missing());
    backoff.pause();
  }
}

}  // namespace rehearse::execute
