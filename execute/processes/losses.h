// Losses on their way from the ranks to whoever prints them. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "execute/transport/stop.h"

namespace rehearse::execute {

// Parts of a step's loss until all of its reporters have reported.
class Losses {
 public:
  void report(std::int64_t step, int rank, double part) {
    const std::lock_guard lock(mutex_);
    parts_[step][rank] = part;
    changed_.notify_all();
  }
  // The parts of a step, added in the reporters' order, if all have reported by kLook from now; they are forgotten.
  std::optional<double> take(std::int64_t step, std::span<const int> reporters) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLook, [&] { return parts_[step].size() == reporters.size(); })) return {};
    double sum = 0;
    for (const int rank : reporters) sum += parts_[step].at(rank);
    parts_.erase(step);
    return sum;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::map<int, double>> parts_;  // step -> rank -> part
};

}  // namespace rehearse::execute
