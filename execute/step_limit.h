// Where a run ends: after all its steps, or sooner once it is asked to. All streams of all ranks of a process end with
// the same step, and know of it when they begin it. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace rehearse::execute {

class StepLimit {
 public:
  // Steps first to end - 1; it ends after whole rounds of steps, counted from 0.
  StepLimit(std::int64_t first, std::int64_t end, std::int64_t round) : end_(end), begun_(first), round_(round) {}

  // By a stream that is about to begin the step: whether it is one of the run's.
  bool begins(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    if (step >= end_) return false;
    begun_ = std::max(begun_, step);
    return true;
  }
  // Of a step that has begun.
  bool last(std::int64_t step) const {
    const std::lock_guard lock(mutex_);
    return step + 1 == end_;
  }
  // Ends with a step that no stream has begun, the first that can be.
  void end_soon() {
    const std::lock_guard lock(mutex_);
    end_ = std::min(end_, (begun_ + 1) / round_ * round_ + round_);
  }
  std::int64_t end() const {
    const std::lock_guard lock(mutex_);
    return end_;
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t end_, begun_;
  const std::int64_t round_;
};

}  // namespace rehearse::execute
