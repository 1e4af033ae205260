// The request to stop: one flag a process, as a signal is the process's. Whatever may take longer than a moment asks
// for it about every few milliseconds - lowering, checks, memory plans, the engine's events, readers, writers - so that
// the program ends within a second of Ctrl-C wherever it is. Any thread may ask.
#pragma once

#include <atomic>
#include <exception>

namespace rehearse {

// Thrown by check_interrupt() once an interrupt was requested.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

namespace detail {
inline std::atomic<bool> interrupt_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // so that a signal's handler may set it
}  // namespace detail

inline void request_interrupt() noexcept {
  detail::interrupt_requested.store(true, std::memory_order_relaxed);
}
inline void check_interrupt() {
  if (detail::interrupt_requested.load(std::memory_order_relaxed)) throw Interrupted();
}

}  // namespace rehearse
