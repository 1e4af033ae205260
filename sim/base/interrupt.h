// The end of the process before its work is done, asked for by a signal: SIGINT (Ctrl-C), SIGTERM (kill, timeout,
// Slurm), SIGHUP (the terminal is gone), SIGXCPU (ulimit -t). The first is a request: work looks for it with
// check_interrupt(), ends by an exception, and destructors take away what was begun. Work that does not look within
// kPatienceSeconds, or a second signal, ends the process at once; files and folders that are listed as unfinished
// (unfinished.h) are removed in the handler. Signals are of the process, and so is this. The same places end work that
// has only so much time (TimeLimit), which is of a thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

namespace rehearse {

inline constexpr unsigned kPatienceSeconds = 5;

// Thrown by check_interrupt().
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal);
  const char* what() const noexcept override { return text_.c_str(); }  // "interrupted", "ended by SIGTERM"
  int signal() const { return signal_; }
  int exit_status() const { return 128 + signal_; }  // as shells report it: 130 for SIGINT, 143 for SIGTERM

 private:
  int signal_;
  std::string text_;
};

// Takes these signals from now on. One that is ignored already, as by nohup or in the background of a shell, stays so.
// SIGXFSZ (ulimit -f) is ignored: a write past the limit then is an error like that of a full disk.
void handle_end_signals();

// Thrown by check_interrupt() behind a TimeLimit's end.
class OutOfTime : public std::exception {
 public:
  const char* what() const noexcept override { return "out of time"; }
};

namespace detail {
using Clock = std::chrono::steady_clock;
inline constexpr std::int64_t kNoLimit = INT64_MAX;
// Of what this thread does: the clock's ticks at which it has to end.
inline thread_local std::int64_t time_limit = kNoLimit;
void check_time();
inline std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // so that a signal's handler may set it
}  // namespace detail

// The first that came; 0: none.
inline int end_signal() {
  return detail::first_signal.load(std::memory_order_relaxed);
}
// What the calling thread does until this object goes, or until the end, whichever is first. The innermost holds.
class TimeLimit {
 public:
  explicit TimeLimit(detail::Clock::time_point end) : before_(detail::time_limit) {
    detail::time_limit = end.time_since_epoch().count();
  }
  ~TimeLimit() { detail::time_limit = before_; }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::int64_t before_;
};

// Throws Interrupted if one came, OutOfTime behind a limit. Cheap: whatever may take longer than a moment asks every
// few milliseconds - lowering, checks, memory plans, the engine's events, readers, writers - so that the program ends
// within a second wherever it is.
inline void check_interrupt() {
  if (const int signal = end_signal(); signal != 0) throw Interrupted(signal);
  if (detail::time_limit != detail::kNoLimit) detail::check_time();
}

// Removes what is unfinished and ends the process by `signal`. May be called in a signal handler.
[[noreturn]] void end_process(int signal);

}  // namespace rehearse
