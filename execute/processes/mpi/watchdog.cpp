// See watchdog.h.
#include "execute/processes/mpi/watchdog.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace rehearse::execute {

Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<std::string()> message) {
  if (limit.count() == 0) return;
  thread_ = std::thread([this, limit, message = std::move(message)] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return called_off_; })) return;
    const std::string text = message() + '\n';
    if (::write(STDERR_FILENO, text.data(), text.size()) >= 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for mpirun to pass it on
    std::_Exit(EXIT_FAILURE);
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    called_off_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace rehearse::execute
