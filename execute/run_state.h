// What the ranks of one run report to whoever started it: losses as steps end, and what went wrong where. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "execute/stop.h"

namespace rehearse::execute {

// Each of `reporters` ranks reports its part of every step's loss; the parts are added in the reporters' order.
class Losses {
 public:
  Losses(int reporters, std::int64_t steps)
      : reporters_(reporters),
        parts_(static_cast<std::size_t>(steps * reporters)),
        counts_(static_cast<std::size_t>(steps)) {}

  void report(std::int64_t step, int reporter, double part) {
    const std::lock_guard lock(mutex_);
    parts_[static_cast<std::size_t>(step * reporters_ + reporter)] = part;
    if (++counts_[static_cast<std::size_t>(step)] == reporters_) changed_.notify_all();
  }
  // The loss of a step if all have reported it by kLook from now.
  std::optional<double> wait(std::int64_t step) {
    std::unique_lock lock(mutex_);
    const bool all =
        changed_.wait_for(lock, kLook, [&] { return counts_[static_cast<std::size_t>(step)] == reporters_; });
    if (!all) return {};
    double sum = 0;
    for (int r = 0; r < reporters_; ++r) sum += parts_[static_cast<std::size_t>(step * reporters_ + r)];
    return sum;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int reporters_;
  std::vector<double> parts_;
  std::vector<int> counts_;
};

// The first thing that went wrong, and who waited where when the run was stopped for it.
class Failures {
 public:
  // The first cause is kept; later ones count as waiting.
  void add_cause(std::string text) {
    const std::lock_guard lock(mutex_);
    if (cause_.empty())
      cause_ = std::move(text);
    else
      waiting_.push_back(std::move(text));
  }
  void add_waiting(std::string text) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(text));
  }
  // After all threads have ended.
  const std::string& cause() const { return cause_; }  // empty: nothing failed
  const std::vector<std::string>& waiting() const { return waiting_; }

 private:
  std::mutex mutex_;
  std::string cause_;
  std::vector<std::string> waiting_;
};

}  // namespace rehearse::execute
