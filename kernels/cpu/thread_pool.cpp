// See thread_pool.h. A call is announced by its number; workers whose index is below the number of parts take one each.
#include "kernels/cpu/thread_pool.h"

namespace rehearse::kernels::cpu {

ThreadPool::ThreadPool(int threads) : threads_(threads), errors_(static_cast<std::size_t>(threads)) {
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int parts, const std::function<void(int)>& body) {
  {
    const std::lock_guard lock(mutex_);
    ++call_;
    parts_ = parts;
    running_ = parts - 1;
    body_ = &body;
  }
  start_.notify_all();
  run_part(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  for (auto& error : errors_) {
    if (error) {
      const std::exception_ptr first = error;
      std::fill(errors_.begin(), errors_.end(), nullptr);
      std::rethrow_exception(first);
    }
  }
}

void ThreadPool::run_part(int part) {
  try {
    (*body_)(part);
  } catch (...) {
    errors_[static_cast<std::size_t>(part)] = std::current_exception();
  }
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stop_ || call_ != seen; });
    if (stop_) return;
    seen = call_;
    if (worker >= parts_) continue;
    lock.unlock();
    run_part(worker);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace rehearse::kernels::cpu
