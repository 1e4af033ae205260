// How long what is queued on a stream takes on the device. A kernel that waits for the host goes before it: all is
// queued by the time the first event is reached, so short kernels are not timed as the launches between them, nor the
// first one as its own way to the device. The wait ends by itself after kLongestHoldMs, should the host be stopped by a
// full queue (about a thousand launches).
#pragma once

#include <functional>

#include "kernels/cuda/runtime.h"

namespace rehearse::kernels::cuda {

class StreamTimer {
 public:
  explicit StreamTimer(Stream& stream);
  // Seconds between events before and after what `queue` queues, to about half a microsecond; waits for the end. What
  // it queues must have been loaded and must not wait for the host.
  double time(const std::function<void()>& queue);

  static constexpr double kLongestHoldMs = 20;

 private:
  Stream& stream_;
  Event begin_, end_;
  PinnedMemory signal_;
};

}  // namespace rehearse::kernels::cuda
