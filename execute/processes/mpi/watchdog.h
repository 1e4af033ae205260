// Ends this process with a message if it is still there after a time: for the calls of MPI that wait for other
// processes and know no deadline (starting MPI, making communicators). A thread blocked in one cannot be got out of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace rehearse::execute {

class Watchdog {
 public:
  // `limit` zero: never. What `message` then says goes to standard error; the exit status is 1, at which mpirun ends
  // the job.
  Watchdog(std::chrono::milliseconds limit, std::function<std::string()> message);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_off_ = false;
  std::thread thread_;
};

}  // namespace rehearse::execute
