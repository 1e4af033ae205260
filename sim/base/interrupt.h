// The end of the process before its work is done, asked for by a signal: SIGINT (Ctrl-C), SIGTERM (kill, timeout,
// Slurm), SIGHUP (the terminal is gone), SIGXCPU (ulimit -t). The first is a request: work looks for it with
// check_interrupt(), ends by an exception, and destructors take away what was begun. Work that does not look within
// kPatienceSeconds, or a second signal, ends the process at once; files and folders that are listed as unfinished
// (unfinished.h) are removed in the handler. Signals are of the process, and so is this.
#pragma once

#include <atomic>
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

namespace detail {
inline std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // so that a signal's handler may set it
}  // namespace detail

// The first that came; 0: none.
inline int end_signal() {
  return detail::first_signal.load(std::memory_order_relaxed);
}
// Throws Interrupted if one came. Cheap: whatever may take longer than a moment asks every few milliseconds - lowering,
// checks, memory plans, the engine's events, readers, writers - so that the program ends within a second wherever it
// is.
inline void check_interrupt() {
  if (const int signal = end_signal(); signal != 0) throw Interrupted(signal);
}

// Removes what is unfinished and ends the process by `signal`. May be called in a signal handler.
[[noreturn]] void end_process(int signal);

}  // namespace rehearse
