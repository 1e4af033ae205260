// How long this process' threads waited for a core while they could have run, from what the kernel keeps of each:
// /proc/self/task/TID/schedstat holds nanoseconds run and nanoseconds waited (Linux, sched-stats.rst).
#pragma once

#include <map>
#include <string>

namespace rehearse::execute {

// Seconds of a thread since it began.
struct ThreadTimes {
  double ran = 0, waited = 0;
};
// Of a text like a schedstat file; zeros if it is another.
ThreadTimes parse_schedstat(const char* text);

// A thread is known from its first look to its last: look often. Threads that are there at construction count from then
// on.
class ThreadWaits {
 public:
  ThreadWaits();
  void look();
  // Of the time since construction in which threads could have run, the share that they waited; -1: nothing is known.
  double waited() const;

  // For look() and tests: what the thread's times are now.
  void add(const std::string& thread, const ThreadTimes& now);

 private:
  struct Known {
    ThreadTimes first, last;
  };
  std::map<std::string, Known> threads_;
  ThreadTimes ended_;  // of threads whose number another took
  bool beginning_ = true;
};

}  // namespace rehearse::execute
