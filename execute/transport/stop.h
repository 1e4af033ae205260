// The end of a run before its time: a flag every blocking wait of the run looks at, and the wait itself. Waits sleep on
// a condition variable and look up at least every kLook, so that raising the flag needs no list of who sleeps where.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "execute/transport/communicator.h"

namespace rehearse::execute {

class Stop {
 public:
  void request() { flag_.store(true, std::memory_order_relaxed); }
  bool requested() const { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_ = false;
};

inline constexpr std::chrono::milliseconds kLook{50};

// Waits until ready() with `lock` held. missing() names the ranks waited for. Throws Stopped, or DeadlineError once
// `limit` has passed (zero: never).
template <class Ready, class Missing>
void wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& condition, const Stop& stop,
              std::chrono::milliseconds limit, Ready ready, Missing missing) {
  if (ready()) return;
  const Clock::time_point deadline = Clock::now() + limit;
  while (!ready()) {
    if (stop.requested()) throw Stopped(missing());
    const Clock::time_point now = Clock::now();
    if (limit.count() > 0 && now >= deadline) throw DeadlineError(missing());
    const Clock::time_point look = now + kLook;
    condition.wait_until(lock, limit.count() > 0 ? std::min(look, deadline) : look);
  }
}

}  // namespace rehearse::execute
