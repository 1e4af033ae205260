// See socket_wire.h. Rank 0 listens and writes its addresses and port into the folder; the others find
// them there. One thread a process moves the bytes; a message is its tag, its length and its bytes.
#include "execute/processes/socket_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "sim/base/check.h"
#include "sim/result/output_file.h"

namespace rehearse::execute {
namespace {

constexpr int kListener = 0;
constexpr const char* kFile = "sockets";
constexpr std::uint64_t kBye = ~std::uint64_t{0};  // a tag: its sender closes the connection
constexpr std::chrono::milliseconds kPollPeriod{20};

struct MessageHeader {
  std::uint64_t tag, bytes;
};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

[[noreturn]] void fail_call(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// IPv4 addresses of this machine; of one interface if it is named, else with the loopback last.
std::vector<std::string> own_addresses(const std::string& interface) {
  std::vector<std::string> addresses, loopback;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) fail_call("getifaddrs");
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if (!interface.empty() && interface != i->ifa_name) continue;
    sockaddr_in address{};
    std::memcpy(&address, i->ifa_addr, sizeof address);
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
    const bool local = ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    (local && interface.empty() ? loopback : addresses).emplace_back(text.data());
  }
  ::freeifaddrs(first);
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

sockaddr_in address_of(const std::string& text, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1)
    throw std::runtime_error(fmt::format("'{}' is no address", text));
  return address;
}

void prepare(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

class SocketWire final : public Wire {
 public:
  SocketWire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost)
      : options_(options), stop_(stop), lost_(std::move(lost)), deadline_(Clock::now() + options.timeout) {
    if (options_.rank == kListener)
      listen();
    else
      call();
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC) != 0) fail_call("pipe");
    wake_read_ = Descriptor(ends[0]);
    wake_write_ = Descriptor(ends[1]);
    thread_ = std::thread([this] { move(); });
  }

  ~SocketWire() override {
    for (const auto& [rank, peer] : peers_) post(rank, 0, kBye, "");
    {
      std::unique_lock lock(mutex_);
      const auto empty = [&] {
        for (const auto& [rank, peer] : peers_)
          if (peer.open && !peer.out.empty()) return false;
        return true;
      };
      const auto until = Clock::now() + options_.timeout;
      while (!empty() && !stop_.requested() && Clock::now() < until) changed_.wait_for(lock, kLook);
    }
    closing_ = true;
    wake();
    thread_.join();
  }

  int rank() const override { return options_.rank; }
  int lanes() const override { return 1; }

  std::unique_ptr<Transfer> send(int to, int lane, std::uint64_t tag, const void* data, std::size_t bytes) override {
    post(to, lane, tag, std::string(static_cast<const char*>(data), bytes));
    return std::make_unique<Awaited>();
  }
  std::unique_ptr<Transfer> receive(int from, int, std::uint64_t tag, void* data, std::size_t bytes) override {
    REHEARSE_CHECK(peers_.contains(from), "rank {} is not connected with rank {}", options_.rank, from);
    auto t = std::make_unique<Awaited>();
    t->from = from;
    t->tag = tag;
    t->data = data;
    t->bytes = bytes;
    return t;
  }
  void wait(Transfer& transfer) override {
    auto& t = dynamic_cast<Awaited&>(transfer);
    std::unique_lock lock(mutex_);
    wait_for(
        lock, changed_, stop_, options_.timeout, [&] { return take(t); }, [&] { return std::vector<int>{t.from}; });
  }
  bool look(Transfer& transfer) override {
    auto& t = dynamic_cast<Awaited&>(transfer);
    std::unique_lock lock(mutex_);
    if (stop_.requested()) throw Stopped({t.from});
    return changed_.wait_for(lock, kLook, [&] { return take(t); });
  }
  void post(int to, int, std::uint64_t tag, std::string message) override {
    const MessageHeader header{tag, message.size()};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += message;
    {
      const std::lock_guard lock(mutex_);
      peers_.at(to).out.push_back(std::move(bytes));
    }
    wake();
  }

 private:
  struct Awaited final : Transfer {
    int from = -1;  // -1: nothing to wait for
    std::uint64_t tag = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Peer {
    Descriptor socket;
    bool open = true, bye = false;
    std::string in;               // received, not yet a whole message
    std::deque<std::string> out;  // the first may be sent in part
    std::size_t sent = 0;         // of the first
  };

  void check_patience(const std::vector<int>& missing) const {
    if (stop_.requested()) throw Stopped(missing);
    if (Clock::now() >= deadline_) throw DeadlineError(missing);
  }
  std::vector<int> not_connected() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.ranks; ++rank)
      if (!peers_.contains(rank)) ranks.push_back(rank);
    return ranks;
  }

  void listen() {
    const std::vector<std::string> addresses = own_addresses(options_.interface);
    if (addresses.empty()) throw std::runtime_error("no network address");
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address = address_of(options_.loopback ? "127.0.0.1" : "0.0.0.0", 0);
    if (!options_.interface.empty()) address = address_of(addresses.front(), 0);
    socklen_t length = sizeof address;
    if (socket.get() < 0 || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(socket.get(), options_.ranks) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
      fail_call("a socket to listen on");
    publish(ntohs(address.sin_port), options_.loopback ? std::vector<std::string>{"127.0.0.1"} : addresses);
    while (static_cast<int>(peers_.size()) < options_.ranks - 1) {
      check_patience(not_connected());
      pollfd ready{socket.get(), POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(kPollPeriod.count())) <= 0) continue;
      Descriptor peer(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer.get() < 0) continue;
      // A stranger that says nothing, or nonsense, is let go.
      const timeval patience{1, 0};
      ::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      std::int32_t rank = -1;
      if (::recv(peer.get(), &rank, sizeof rank, MSG_WAITALL) != sizeof rank) continue;
      if (rank < 1 || rank >= options_.ranks || peers_.contains(rank)) continue;
      prepare(peer.get());
      peers_[rank].socket = std::move(peer);
    }
  }

  void publish(int port, const std::vector<std::string>& addresses) const {
    std::string text = fmt::to_string(port);
    for (const std::string& address : addresses) text += ' ' + address;
    result::OutputFile file(options_.folder + "/" + kFile, result::OutputFile::Format::plain);
    file.write(text + '\n');
    file.commit();  // whole when it is seen
  }

  void call() {
    for (;;) {
      check_patience({kListener});
      std::ifstream in(std::filesystem::path(options_.folder) / kFile);
      std::string address;
      for (int port = in >> port ? port : 0; in >> address;) {
        Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (socket.get() < 0 || !connect(socket.get(), address_of(address, port))) continue;
        const auto rank = static_cast<std::int32_t>(options_.rank);
        if (::send(socket.get(), &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank) continue;
        prepare(socket.get());
        peers_[kListener].socket = std::move(socket);
        return;
      }
      std::this_thread::sleep_for(kPollPeriod);
    }
  }

  static bool connect(int fd, const sockaddr_in& address) {
    constexpr int kPatienceMs = 1000;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
    if (errno != EINPROGRESS) return false;
    pollfd ready{fd, POLLOUT, 0};
    int error = 0;
    socklen_t length = sizeof error;
    return ::poll(&ready, 1, kPatienceMs) == 1 && ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
           error == 0;
  }

  void wake() const {
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = ::write(wake_write_.get(), &byte, 1);  // full: it is awake
  }

  // With the mutex held. Whether what is awaited has come.
  bool take(Awaited& t) {
    if (t.from < 0) return true;
    const auto found = inbox_.find({t.from, t.tag});
    if (found == inbox_.end()) return false;
    const std::string message = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) inbox_.erase(found);
    REHEARSE_CHECK(message.size() == t.bytes, "a message of {} bytes, {} expected", message.size(), t.bytes);
    std::memcpy(t.data, message.data(), message.size());
    t.from = -1;
    return true;
  }

  void move() {
    while (!closing_) {
      std::vector<pollfd> waits{{wake_read_.get(), POLLIN, 0}};
      std::vector<int> ranks;
      {
        const std::lock_guard lock(mutex_);
        for (const auto& [rank, peer] : peers_) {
          if (!peer.open) continue;
          waits.push_back({peer.socket.get(), static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
          ranks.push_back(rank);
        }
      }
      if (::poll(waits.data(), waits.size(), static_cast<int>(kLook.count())) <= 0) continue;
      std::array<char, 64> bytes{};
      while (::read(wake_read_.get(), bytes.data(), bytes.size()) > 0) {
      }
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const short what = waits[i + 1].revents;
        if (what != 0 && !serve(ranks[i], what)) lose(ranks[i]);
      }
      changed_.notify_all();
    }
  }

  // False once the connection has ended.
  bool serve(int rank, short what) {
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_.at(rank);
    const bool written = (what & POLLOUT) == 0 || write(peer);
    const bool open = (written && (what & (POLLIN | POLLHUP | POLLERR)) == 0) || read(rank, peer);
    return written && open;
  }

  static bool write(Peer& peer) {
    while (!peer.out.empty()) {
      const std::string& message = peer.out.front();
      const ssize_t n = ::send(peer.socket.get(), message.data() + peer.sent, message.size() - peer.sent, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      peer.sent += static_cast<std::size_t>(n);
      if (peer.sent < message.size()) continue;
      peer.out.pop_front();
      peer.sent = 0;
    }
    return true;
  }

  bool read(int rank, Peer& peer) {
    std::array<char, 1 << 16> bytes;
    bool open = true;
    for (;;) {
      const ssize_t n = ::recv(peer.socket.get(), bytes.data(), bytes.size(), 0);
      if (n > 0) {
        peer.in.append(bytes.data(), static_cast<std::size_t>(n));
        continue;
      }
      open = n < 0 && (errno == EAGAIN || errno == EINTR);
      break;
    }
    // What came before the end counts: the last message says that the end is meant.
    std::size_t at = 0;
    for (MessageHeader header{}; peer.in.size() - at >= sizeof header;) {
      std::memcpy(&header, peer.in.data() + at, sizeof header);
      if (peer.in.size() - at - sizeof header < header.bytes) break;
      if (header.tag == kBye) peer.bye = true;
      inbox_[{rank, header.tag}].push_back(peer.in.substr(at + sizeof header, header.bytes));
      at += sizeof header + header.bytes;
    }
    peer.in.erase(0, at);
    return open;
  }

  void lose(int rank) {
    bool expected = false;
    {
      const std::lock_guard lock(mutex_);
      Peer& peer = peers_.at(rank);
      peer.open = false;
      expected = peer.bye || closing_ || stop_.requested();
    }
    if (!expected) lost_(rank);
  }

  const WireOptions options_;
  const Stop& stop_;
  const std::function<void(int)> lost_;
  const Clock::time_point deadline_;
  std::mutex mutex_;  // of peers_ and inbox_
  std::condition_variable changed_;
  std::map<int, Peer> peers_;
  std::map<std::pair<int, std::uint64_t>, std::deque<std::string>> inbox_;
  Descriptor wake_read_, wake_write_;
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Wire> make_socket_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost) {
  return std::make_unique<SocketWire>(options, stop, std::move(lost));
}

}  // namespace rehearse::execute
