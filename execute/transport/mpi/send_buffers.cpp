// See send_buffers.h.
#include "execute/transport/mpi/send_buffers.h"

#include <algorithm>
#include <limits>

#include "execute/transport/mpi/call.h"
#include "sim/base/check.h"

namespace rehearse::execute {

void SendBuffers::send(const void* data, std::size_t bytes, int to, int tag, MPI_Comm comm) {
  REHEARSE_CHECK(bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "a message of {} bytes", bytes);
  const auto* first = static_cast<const std::byte*>(data);
  std::vector<std::byte> buffer(first, first + bytes);
  const std::lock_guard lock(mutex_);
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Isend(buffer.data(), static_cast<int>(bytes), MPI_BYTE, to, tag, comm, &request));
  buffers_.push_back(std::move(buffer));
  requests_.push_back(request);
  added_.notify_all();
}

bool SendBuffers::progress() {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) return false;
  int count = 0;
  done_.resize(requests_.size());
  REHEARSE_MPI(
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), MPI_STATUSES_IGNORE));
  if (count <= 0) return true;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;  // as MPI_Testsome leaves those that are done
    if (kept != i) {
      requests_[kept] = requests_[i];
      buffers_[kept] = std::move(buffers_[i]);
    }
    ++kept;
  }
  requests_.resize(kept);
  buffers_.resize(kept);
  return kept > 0;
}

void SendBuffers::await_work(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  added_.wait_for(lock, limit, [&] { return !requests_.empty(); });
}

}  // namespace rehearse::execute
