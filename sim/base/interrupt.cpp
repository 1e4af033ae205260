// See interrupt.h. Handlers call only what POSIX allows in them: clock_gettime, alarm, sigaction, raise and, in
// remove_unfinished(), unlinkat and the like.
#include "sim/base/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "sim/base/unfinished.h"

namespace rehearse {
namespace {

using detail::first_signal;

std::atomic<std::int64_t> first_ms = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// Whoever ends a job may send a signal to the process and to its group (timeout does): these two are one.
constexpr std::int64_t kOneSignalMs = 500;

struct EndSignal {
  int number;
  const char* name;
};
constexpr std::array<EndSignal, 4> kEndSignals = {
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGXCPU, "SIGXCPU"}}};

std::int64_t now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

void on_end_signal(int signal) {
  const int before = errno;
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_ms = now_ms();
    ::alarm(kPatienceSeconds);
  } else if (now_ms() - first_ms > kOneSignalMs) {
    end_process(signal);
  }
  errno = before;
}

void on_alarm(int) {
  if (const int signal = first_signal; signal != 0) end_process(signal);
}

std::string text_of(int signal) {
  if (signal == SIGINT) return "interrupted";
  for (const EndSignal& one : kEndSignals)
    if (one.number == signal) return std::string("ended by ") + one.name;
  return "ended by signal " + std::to_string(signal);
}

}  // namespace

Interrupted::Interrupted(int signal) : signal_(signal), text_(text_of(signal)) {}

void handle_end_signals() {
  struct sigaction action {
  }, inherited{};
  for (const EndSignal& one : kEndSignals) {
    ::sigaction(one.number, nullptr, &inherited);
    if (inherited.sa_handler == SIG_IGN) continue;
    action.sa_handler = on_end_signal;
    action.sa_flags = SA_RESTART;  // libraries know no interrupted calls
    ::sigaction(one.number, &action, nullptr);
  }
  action.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &action, nullptr);
}

void end_process(int signal) {
  remove_unfinished();
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::raise(signal);  // pending until it is let through, if this is its handler
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::_exit(128 + signal);
}

void detail::check_time() {
  if (Clock::now().time_since_epoch().count() >= time_limit) throw OutOfTime();
}

}  // namespace rehearse
