// Looks after what a GPU rank has queued, in a thread of its own, since the issuing thread may be stuck in a call of
// the driver: how far each stream has come (for Whereabouts), whether a transfer waits for others beyond the deadline,
// whether transfers report an error, whether the run is stopped; then it ends the rank's transfers, so that whatever
// waits for them goes on. Streams are followed by marks: events before and after each transfer, and after some kernels.
// Only transfers have a deadline, from when their stream reached them; kernels may take their time.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "execute/processes/whereabouts.h"
#include "execute/rank/gpu/gpu.h"
#include "execute/transport/communicator.h"
#include "execute/transport/queued_transfers.h"
#include "execute/transport/stop.h"

namespace rehearse::execute {

class Watch {
 public:
  struct Handlers {
    std::function<void(std::int32_t instance)> late;                             // waited too long there
    std::function<void(std::int32_t instance, const std::string& what)> failed;  // instance -1: unknown
  };

  // `transfers` may be null. All outlive it.
  Watch(Gpu& gpu, QueuedTransfers* transfers, const Stop& stop, Whereabouts& at, std::size_t streams,
        std::chrono::milliseconds timeout, Handlers handlers);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // By the issuing thread, in the order of each stream. `instance` is -1 for a whole step that was launched as a graph.
  void begin_transfer(std::size_t program_stream, Gpu::Stream stream, std::int32_t instance);
  void end_transfer(std::size_t program_stream, Gpu::Stream stream);
  void mark(std::size_t program_stream, Gpu::Stream stream, std::int32_t instance);  // after a kernel
  // Around a transfer that is recorded for a graph: no event tells when its stream reaches it, but the call may not
  // return before others make it, and has its deadline from now.
  void begin_call(std::size_t program_stream, std::int32_t instance);
  void end_call(std::size_t program_stream);
  // A whole step, launched as a graph; with a deadline if there are transfers in it.
  void begin_graph(std::size_t program_stream, Gpu::Stream stream, bool transfers);

  // The transfer that waits now, the earliest in program order if several do; -1: a graph.
  std::optional<std::int32_t> waiting() const;
  // Forgets all: nothing is queued any more.
  void clear();

 private:
  struct Mark {
    std::int32_t instance = -1;
    bool transfer = false;
    Gpu::Event begun = -1, done = -1;  // begun: only of transfers
    std::optional<Clock::time_point> since;
  };
  struct Queue {
    std::deque<Mark> marks;
    std::optional<Mark> open;  // between begin_transfer() and end_transfer() or those of a call: not yet in marks
  };

  void run();
  bool look();  // whether to go on
  void advance(std::size_t stream, Queue& queue);
  Gpu::Event event();
  void record(std::size_t program_stream, const Mark& mark);

  Gpu& gpu_;
  QueuedTransfers* transfers_;
  const Stop& stop_;
  Whereabouts& at_;
  const std::chrono::milliseconds timeout_;
  const Handlers handlers_;
  mutable std::mutex mutex_;  // of queues_ and free_
  std::vector<Queue> queues_;
  std::vector<Gpu::Event> free_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace rehearse::execute
