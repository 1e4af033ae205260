// See devices.h.
#include "execute/placement/devices.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>

#include "execute/rank/gpu/cuda_gpu.h"
#include "kernels/cuda/cuda.h"

namespace rehearse::execute {
namespace {

// A line each: "free total name", or "- why there is none".
std::string describe(bool free_memory) {
  try {
    if (const std::string why = kernels::cuda::why_no_device(); !why.empty()) return "- " + why + "\n";
    std::string text;
    for (int i = 0; i < kernels::cuda::device_count(); ++i) {
      const kernels::cuda::DeviceFacts facts = kernels::cuda::device_facts(i);
      const std::int64_t free = free_memory ? make_cuda_gpu(i)->memory().free_bytes : facts.memory_bytes;
      text += fmt::format("{} {} {}\n", free, facts.memory_bytes, facts.name);
    }
    return text;
  } catch (const std::exception& error) {
    return fmt::format("- {}\n", error.what());
  }
}

// What the child writes; nothing if it does not answer.
std::string read_all(int fd, std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string text;
  for (std::array<char, 4096> bytes{};;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int what = left.count() > 0 ? ::poll(&ready, 1, static_cast<int>(left.count())) : 0;
    if (what < 0 && errno == EINTR) continue;
    if (what <= 0) return "";
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n <= 0) return text;
    text.append(bytes.data(), static_cast<std::size_t>(n));
  }
}

std::string ask_in_child(bool free_memory, std::chrono::seconds patience) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return fmt::format("- {}", std::strerror(errno));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    const std::string text = describe(free_memory);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(ends[1], text.data() + at, text.size() - at);
      if (n <= 0) break;
      at += static_cast<std::size_t>(n);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  const std::string text = child < 0 ? fmt::format("- {}", std::strerror(errno)) : read_all(ends[0], patience);
  ::close(ends[0]);
  if (child > 0) {
    if (text.empty()) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return text;
}

}  // namespace

Devices find_devices(bool free_memory, std::chrono::seconds patience) {
  Devices found;
  std::istringstream lines(ask_in_child(free_memory, patience));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("- ")) {
      found.devices.clear();
      found.why_none = line.substr(2);
      return found;
    }
    DeviceMemory device;
    std::istringstream words(line);
    words >> device.free_bytes >> device.total_bytes >> std::ws;
    std::getline(words, device.name);
    found.devices.push_back(device);
  }
  if (found.devices.empty()) found.why_none = "the driver does not answer";
  return found;
}

}  // namespace rehearse::execute
