// Sends that nobody waits for: a copy of what is sent lives here until MPI is done with it. Thread-safe.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "execute/transport/communicator.h"

namespace rehearse::execute {

class SendBuffers {
 public:
  // Copies `bytes` bytes and sends them.
  void send(const void* data, std::size_t bytes, int to, int tag, MPI_Comm comm);
  // Lets MPI get on with them and forgets those that are done. Returns whether any are left.
  bool progress();
  // Sleeps until there is something to send, or until `limit` has passed.
  void await_work(std::chrono::milliseconds limit);

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::vector<std::byte>> buffers_;  // beside requests_
  std::vector<MPI_Request> requests_;
  std::vector<int> done_;
};

}  // namespace rehearse::execute
