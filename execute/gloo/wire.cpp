// Gloo's wait on a buffer can be aborted by another thread, and only by that ended early without harm: a lookout thread
// looks at the stop flag and at deadlines every kLook and aborts the waits that must end. A sent letter waits in the
// outbox, from which a postman thread removes it once the receiver has fetched it.
#include "execute/gloo/wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "execute/gloo/gloo_world.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

using Buffer = gloo::transport::UnboundBuffer;
constexpr std::chrono::hours kForever{24 * 365};  // gloo wants a timeout; ours are the lookout's

struct GlooTransfer : Wire::Transfer {
  std::unique_ptr<Buffer> buffer;
  int peer = 0;
  bool sending = false;
};

struct Letter {
  std::string bytes;
  std::unique_ptr<Wire::Transfer> transfer;
};

class GlooWire : public Wire {
 public:
  GlooWire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost)
      : options_(options), stop_(stop), lost_(std::move(lost)) {
    connect();
    lookout_ = std::thread([this] { look_out(); });
    postman_ = std::thread([this] { deliver(); });
  }

  ~GlooWire() override {
    {
      std::unique_lock lock(outbox_mutex_);
      const auto deadline = Clock::now() + options_.timeout;
      while (!outbox_.empty() && !stop_.requested() && Clock::now() < deadline) posted_.wait_for(lock, kLook);
      closing_ = true;
      posted_.notify_all();
    }
    postman_.join();
    closed_ = true;
    lookout_.join();
  }

  int rank() const override { return options_.rank; }
  int lanes() const override { return options_.lanes; }

  std::unique_ptr<Transfer> send(int to, int lane, std::uint64_t tag, const void* data, std::size_t bytes) override {
    return begin(to, lane, tag, const_cast<void*>(data), bytes, true);
  }
  std::unique_ptr<Transfer> receive(int from, int lane, std::uint64_t tag, void* data, std::size_t bytes) override {
    return begin(from, lane, tag, data, bytes, false);
  }

  void wait(Transfer& transfer) override {
    auto& t = static_cast<GlooTransfer&>(transfer);
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    while (!wait_until(t, deadline)) {
      if (stop_.requested()) throw Stopped({t.peer});
      if (Clock::now() >= deadline) throw DeadlineError({t.peer});
    }
  }

  bool look(Transfer& transfer) override {
    return wait_until(static_cast<GlooTransfer&>(transfer), Clock::now() + kLook);
  }

  void post(int to, int lane, std::uint64_t tag, std::string bytes) override {
    auto letter = std::make_unique<Letter>();
    letter->bytes = std::move(bytes);
    letter->transfer = send(to, lane, tag, letter->bytes.data(), letter->bytes.size());
    const std::lock_guard lock(outbox_mutex_);
    outbox_.push_back(std::move(letter));
    posted_.notify_all();
  }

 private:
  struct Watched {
    Buffer* buffer;
    bool sending;
    Clock::time_point deadline;
  };

  void connect() {
    gloo::transport::tcp::attr attr;
    if (!options_.interface.empty())
      attr.iface = options_.interface;
    else if (options_.loopback)
      attr.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore files(options_.folder);
    for (int lane = 0; lane < options_.lanes; ++lane) {
      gloo::rendezvous::PrefixStore store(fmt::format("lane{}", lane), files);
      auto context = std::make_shared<gloo::rendezvous::Context>(options_.rank, options_.ranks);
      context->setTimeout(options_.timeout);
      context->connectFullMesh(store, device);
      contexts_.push_back(std::move(context));
    }
  }

  std::unique_ptr<Transfer> begin(int peer, int lane, std::uint64_t tag, void* data, std::size_t bytes, bool sending) {
    auto t = std::make_unique<GlooTransfer>();
    t->peer = peer;
    t->sending = sending;
    try {
      t->buffer = contexts_[static_cast<std::size_t>(lane)]->createUnboundBuffer(data, bytes);
      if (sending)
        t->buffer->send(peer, tag);
      else
        t->buffer->recv(peer, tag);
    } catch (const gloo::Exception&) {
      lose(peer);
    }
    return t;
  }

  // False if it was not done by the deadline, or the run was stopped.
  bool wait_until(GlooTransfer& t, Clock::time_point deadline) {
    std::list<Watched>::iterator watched;
    {
      const std::lock_guard lock(watched_mutex_);
      watched = watched_.insert(watched_.end(), {t.buffer.get(), t.sending, deadline});
    }
    const auto unwatch = [&] {
      const std::lock_guard lock(watched_mutex_);
      watched_.erase(watched);
    };
    try {
      const bool done = t.sending ? t.buffer->waitSend(nullptr, kForever) : t.buffer->waitRecv(nullptr, kForever);
      unwatch();
      return done;
    } catch (const gloo::Exception&) {
      unwatch();
      lose(t.peer);
    }
    return false;
  }

  [[noreturn]] void lose(int peer) {
    if (!stop_.requested() && !closing_) lost_(peer);
    throw Stopped({peer});
  }

  void look_out() {
    while (!closed_) {
      {
        const std::lock_guard lock(watched_mutex_);
        const Clock::time_point now = Clock::now();
        for (const Watched& w : watched_) {
          if (!stop_.requested() && now < w.deadline) continue;
          if (w.sending)
            w.buffer->abortWaitSend();
          else
            w.buffer->abortWaitRecv();
        }
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  void deliver() {
    std::unique_lock lock(outbox_mutex_);
    while (!closing_) {
      if (outbox_.empty()) {
        posted_.wait(lock);
        continue;
      }
      Letter& letter = *outbox_.front();
      lock.unlock();
      bool done = false;
      try {
        done = look(*letter.transfer);
      } catch (const Stopped&) {
        done = true;  // nobody will fetch it
      }
      lock.lock();
      if (!done) continue;
      outbox_.pop_front();
      posted_.notify_all();
    }
  }

  const WireOptions options_;
  const Stop& stop_;
  const std::function<void(int)> lost_;
  std::vector<std::shared_ptr<gloo::rendezvous::Context>> contexts_;
  std::mutex watched_mutex_;
  std::list<Watched> watched_;
  std::mutex outbox_mutex_;
  std::condition_variable posted_;
  std::deque<std::unique_ptr<Letter>> outbox_;
  std::atomic<bool> closing_ = false, closed_ = false;
  std::thread lookout_, postman_;
};

}  // namespace

bool gloo_available() {
  return true;
}

std::unique_ptr<Wire> make_gloo_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost) {
  try {
    return std::make_unique<GlooWire>(options, stop, std::move(lost));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("the ranks could not be connected: {}", error.what()));
  }
}

void check_interface(const std::string& name) {
  std::set<std::string> names;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) == 0) {
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next)
      if (i->ifa_addr != nullptr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
        names.insert(i->ifa_name);
    ::freeifaddrs(first);
  }
  if (!names.contains(name))
    throw InputError(Diagnostic{"--interface", 0, 0, "", fmt::format("no interface '{}' with an address", name),
                                fmt::format("there are {}", fmt::join(names, ", "))});
}

}  // namespace rehearse::execute
