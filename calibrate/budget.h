// The time a calibration may take, and how it is split: work is a list of parts with weights, done in order, and each
// part gets its weight's share of what is left when it begins. So what one part does not use goes to those after it,
// and what one overruns is taken from them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace rehearse::calibrate {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Seconds for part `index` of `weights` when `left` seconds are: 0 if nothing is left or it weighs nothing.
double share_of(const std::vector<double>& weights, std::size_t index, double left);

// A deadline, and what is to be called often while something is measured (progress, interrupts; what it throws ends the
// calibration).
class Budget {
 public:
  Budget(double seconds, std::function<void()> poll) : Budget(Clock::now(), seconds, std::move(poll)) {}

  // A budget of its own for a part: it ends after `seconds`, and no later than this one.
  Budget part(double seconds) const;
  double left() const { return seconds_between(Clock::now(), end_); }
  bool spent() const { return left() <= 0; }
  void poll() const {
    if (poll_) poll_();
  }

 private:
  Budget(Clock::time_point from, double seconds, std::function<void()> poll)
      : end_(from + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))),
        poll_(std::move(poll)) {}

  Clock::time_point end_;
  std::function<void()> poll_;
};

}  // namespace rehearse::calibrate
