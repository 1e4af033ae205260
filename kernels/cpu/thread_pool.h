// The threads of one device: the caller and threads - 1 workers that sleep between calls. With one thread no thread is
// ever started. Which worker runs which part is fixed, so a call is deterministic. One call at a time.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rehearse::kernels::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // body(begin, end, worker) on disjoint ranges that cover [0, n), cut at multiples of `grain`, at most one a thread.
  // Returns when all are done; rethrows the first exception in worker order.
  template <class Body>
  void ranges(std::int64_t n, std::int64_t grain, const Body& body) {
    const std::int64_t grains = (n + grain - 1) / grain;
    const std::int64_t parts = std::min<std::int64_t>(threads_, grains);
    if (parts <= 1) {
      if (n > 0) body(std::int64_t{0}, n, 0);
      return;
    }
    run(static_cast<int>(parts), [&](int part) {
      const std::int64_t begin = grains * part / parts * grain, end = grains * (part + 1) / parts * grain;
      body(begin, std::min(end, n), part);
    });
  }

 private:
  void run(int parts, const std::function<void(int)>& body);
  void run_part(int part);
  void work(int worker);

  int threads_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  // Guarded by mutex_.
  std::uint64_t call_ = 0;
  int parts_ = 0, running_ = 0;
  const std::function<void(int)>* body_ = nullptr;
  std::vector<std::exception_ptr> errors_;
  bool stop_ = false;
};

}  // namespace rehearse::kernels::cpu
