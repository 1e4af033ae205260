// See attendance.h.
#include "execute/processes/mpi/attendance.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "execute/processes/failures.h"
#include "execute/processes/launch_environment.h"

namespace rehearse::execute {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The abstract address, and how long it is: names end with their length.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& job, int rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("rehearse.{}.{}.{}", ::getuid(), job, rank);
  const std::size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data() + (name.size() - bytes), bytes);  // the end tells names apart
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)};
}

}  // namespace

Attendance::Attendance() {
  const Launch launch = read_launch(process_environment());
  const std::string job = variable("PMIX_NAMESPACE");
  if (job.empty() || variable("OMPI_COMM_WORLD_LOCAL_SIZE") != fmt::to_string(launch.ranks)) return;
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto [address, length] = abstract_address(job, launch.rank);
  if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket_, launch.ranks) != 0)
    return;
  job_ = job;
  ranks_ = launch.ranks;
}

Attendance::~Attendance() {
  if (socket_ >= 0) ::close(socket_);
}

std::string Attendance::missing_text() const {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int caller = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (caller < 0) return "";
    const auto [address, length] = abstract_address(job_, rank);
    const bool there = ::connect(caller, reinterpret_cast<const sockaddr*>(&address), length) == 0 || errno == EAGAIN;
    ::close(caller);
    if (!there) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  return ranks_text(missing);
}

}  // namespace rehearse::execute
