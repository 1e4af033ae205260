// Gloo's wait on a buffer can be aborted by another thread, and only by that ended early without harm: a lookout thread
// looks at the stop flag and at deadlines every kLook and aborts the waits that must end. A sent message waits in the
// queue, from which a delivery thread removes it once the receiver has fetched it.
#include "execute/transport/gloo/gloo_wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <fstream>
#include <iterator>
#include <list>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "sim/base/diagnostics.h"
#include "sim/result/output_file.h"

namespace rehearse::execute {
namespace {

using GlooBuffer = gloo::transport::UnboundBuffer;
constexpr std::chrono::hours kForever{24 * 365};  // gloo wants a timeout; ours are the lookout's

struct GlooTransfer : Wire::Transfer {
  std::unique_ptr<GlooBuffer> buffer;
  int peer = 0;
  bool sending = false;
};

// Where the ranks leave their addresses for one another: a file a key in their folder. What a lane's ranks ask for is
// the number of a rank, so that a wait knows who has not come.
class AddressFiles : public gloo::rendezvous::Store {
 public:
  AddressFiles(const WireOptions& options, const std::atomic<bool>& given_up)
      : options_(options), given_up_(given_up), deadline_(Clock::now() + options.timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    result::OutputFile file(path(key), result::OutputFile::Format::plain);
    file.write({data.data(), data.size()});
    file.commit();
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    std::ifstream in(path(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      const int rank = std::atoi(key.substr(key.rfind('/') + 1).c_str());
      for (; ::access(path(key).c_str(), F_OK) != 0; std::this_thread::sleep_for(kLook / 5)) {
        if (given_up_) throw Stopped(std::vector<int>{rank});
        if (Clock::now() >= deadline_) throw DeadlineError(std::vector<int>{rank});
      }
    }
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  std::string path(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '.');
    return options_.folder + "/" + key;
  }

  const WireOptions& options_;
  const std::atomic<bool>& given_up_;
  const Clock::time_point deadline_;
};

// Connecting, by a thread of its own: Gloo waits in it for others and cannot be made to stop. Whoever gives it up
// leaves it to its timeout.
struct Connecting {
  explicit Connecting(WireOptions o) : options(std::move(o)) {}

  void run() {
    try {
      connect();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
  void connect() {
    gloo::transport::tcp::attr attr;
    if (!options.interface.empty())
      attr.iface = options.interface;
    else if (options.loopback)
      attr.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    AddressFiles files(options, given_up);
    for (int lane = 0; lane < options.lanes; ++lane) {
      gloo::rendezvous::PrefixStore store(fmt::format("lane{}", lane), files);
      auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.ranks);
      context->setTimeout(options.timeout);
      context->connectFullMesh(store, device);
      contexts.push_back(std::move(context));
    }
  }

  const WireOptions options;
  std::vector<std::shared_ptr<gloo::rendezvous::Context>> contexts;
  std::exception_ptr error;
  std::atomic<bool> given_up = false;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

struct PostedMessage {
  std::string bytes;
  std::unique_ptr<Wire::Transfer> transfer;
};

class GlooWire : public Wire {
 public:
  GlooWire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost)
      : options_(options), stop_(stop), lost_(std::move(lost)), posted_(static_cast<std::size_t>(options.lanes)) {
    connect();
    lookout_ = std::thread([this] { look_out(); });
    for (Posted& lane : posted_) lane.thread = std::thread([this, &lane] { deliver(lane.messages); });
  }

  ~GlooWire() override {
    {
      std::unique_lock lock(posted_mutex_);
      const auto deadline = Clock::now() + options_.timeout;
      const auto delivered = [this] {
        return std::all_of(posted_.begin(), posted_.end(), [](const Posted& lane) { return lane.messages.empty(); });
      };
      while (!delivered() && !stop_.requested() && Clock::now() < deadline) posted_changed_.wait_for(lock, kLook);
      closing_ = true;
      posted_changed_.notify_all();
    }
    for (Posted& lane : posted_) lane.thread.join();
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
    auto message = std::make_unique<PostedMessage>();
    message->bytes = std::move(bytes);
    message->transfer = send(to, lane, tag, message->bytes.data(), message->bytes.size());
    const std::lock_guard lock(posted_mutex_);
    posted_[static_cast<std::size_t>(lane)].messages.push_back(std::move(message));
    posted_changed_.notify_all();
  }

 private:
  struct Watched {
    GlooBuffer* buffer;
    bool sending;
    Clock::time_point deadline;
  };

  // Throws Stopped if the run is stopped before, DeadlineError, or what Gloo says.
  void connect() {
    const auto connecting = std::make_shared<Connecting>(options_);
    std::thread thread([connecting] { connecting->run(); });
    {
      std::unique_lock lock(connecting->mutex);
      while (!connecting->changed.wait_for(lock, kLook, [&] { return connecting->done; })) {
        if (!stop_.requested()) continue;
        connecting->given_up = true;
        thread.detach();
        throw Stopped(std::vector<int>());
      }
    }
    thread.join();
    if (connecting->error) std::rethrow_exception(connecting->error);
    contexts_ = std::move(connecting->contexts);
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

  using Messages = std::deque<std::unique_ptr<PostedMessage>>;

  // Frees what has been fetched, lane by lane: losses, which the root takes step by step, keep no gradients waiting.
  void deliver(Messages& posted) {
    std::unique_lock lock(posted_mutex_);
    while (!closing_) {
      if (posted.empty()) {
        posted_changed_.wait(lock);
        continue;
      }
      PostedMessage& message = *posted.front();
      lock.unlock();
      bool done = false;
      try {
        done = look(*message.transfer);
      } catch (const Stopped&) {
        done = true;  // nobody will fetch it
      }
      lock.lock();
      if (!done) continue;
      posted.pop_front();
      posted_changed_.notify_all();
    }
  }

  const WireOptions options_;
  const Stop& stop_;
  const std::function<void(int)> lost_;
  std::vector<std::shared_ptr<gloo::rendezvous::Context>> contexts_;
  std::mutex watched_mutex_;
  std::list<Watched> watched_;
  std::mutex posted_mutex_;
  std::condition_variable posted_changed_;
  struct Posted {
    Messages messages;
    std::thread thread;
  };
  std::vector<Posted> posted_;  // by lane
  std::atomic<bool> closing_ = false, closed_ = false;
  std::thread lookout_;
};

}  // namespace

bool gloo_available() {
  return true;
}

std::unique_ptr<Wire> make_gloo_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost) {
  return std::make_unique<GlooWire>(options, stop, std::move(lost));
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
