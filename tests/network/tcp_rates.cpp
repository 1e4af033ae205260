// See tcp_rates.h. setns(2) moves the calling thread alone, and a socket stays in the namespace it was made in.
#include "tcp_rates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>

namespace rehearse::network {
namespace {

using Clock = std::chrono::steady_clock;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + ": " + std::strerror(errno));
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) { require(fd >= 0, "socket"); }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

void enter(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, name);
  const int moved = ::setns(fd, CLONE_NEWNET);
  ::close(fd);
  require(moved == 0, "setns " + name);
}

void limit_waiting(int fd) {
  const timeval limit{20, 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    require(::setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit) == 0, "setsockopt");
}

sockaddr_in address(const std::string& host, std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  require(::inet_pton(AF_INET, host.c_str(), &a.sin_addr) == 1, host);
  return a;
}

// Bytes a second from when an eighth of `bytes` had come.
double receive(int listener, std::int64_t bytes) {
  const Socket from(::accept(listener, nullptr, nullptr));
  limit_waiting(from.fd());
  std::vector<char> buffer(1 << 16);
  std::int64_t got = 0, timed_from = -1;
  Clock::time_point begin;
  while (got < bytes) {
    const ssize_t n = ::recv(from.fd(), buffer.data(), buffer.size(), 0);
    require(n >= 0, "recv");
    if (n == 0) throw std::runtime_error("recv: the sender left");
    got += n;
    if (timed_from < 0 && got >= bytes / 8) {
      timed_from = got;
      begin = Clock::now();
    }
  }
  return static_cast<double>(got - timed_from) / std::chrono::duration<double>(Clock::now() - begin).count();
}

void send(const sockaddr_in& to, std::int64_t bytes) {
  const Socket out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  limit_waiting(out.fd());
  require(::connect(out.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "connect");
  const std::vector<char> buffer(1 << 16);
  while (bytes > 0) {
    const ssize_t n =
        ::send(out.fd(), buffer.data(), std::min(buffer.size(), static_cast<std::size_t>(bytes)), MSG_NOSIGNAL);
    require(n > 0, "send");
    bytes -= n;
  }
}

}  // namespace

std::vector<double> tcp_rates(const std::vector<Flow>& flows) {
  std::vector<std::promise<std::uint16_t>> ports(flows.size());
  std::vector<std::future<double>> received;
  std::vector<std::future<void>> sent;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const Flow& flow = flows[f];
    received.push_back(std::async(std::launch::async, [&flow, &port = ports[f]] {
      try {
        enter(flow.to_namespace);
        const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        limit_waiting(listener.fd());
        sockaddr_in at = address(flow.to_address, 0);
        socklen_t length = sizeof at;
        require(::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0, "bind");
        require(::listen(listener.fd(), 1) == 0, "listen");
        require(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &length) == 0, "getsockname");
        port.set_value(ntohs(at.sin_port));
        return receive(listener.fd(), flow.bytes);
      } catch (...) {
        try {
          port.set_exception(std::current_exception());
        } catch (const std::future_error&) {  // the port was known
        }
        throw;
      }
    }));
    sent.push_back(std::async(std::launch::async, [&flow, &port = ports[f]] {
      enter(flow.from_namespace);
      send(address(flow.to_address, port.get_future().get()), flow.bytes);
    }));
  }
  std::vector<double> rates;
  for (auto& s : sent) s.get();
  for (auto& r : received) rates.push_back(r.get());
  return rates;
}

}  // namespace rehearse::network
