// See mpi_wire.h.
#include "execute/transport/mpi/mpi_wire.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "execute/transport/mpi/call.h"
#include "execute/transport/mpi/poll.h"
#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

constexpr int kHeader = 0, kBody = 1;  // MPI's tags

struct Header {
  std::int64_t lane = 0;
  std::uint64_t tag = 0;
  std::int64_t bytes = 0;
};

using Key = std::tuple<int, int, std::uint64_t>;  // peer, lane, tag

class MpiWire final : public Wire {
 public:
  MpiWire(MPI_Comm world, int lanes, std::chrono::milliseconds limit, const Stop& stop, SendBuffers& send_buffers,
          std::size_t piece)
      : lanes_(lanes), limit_(limit), stop_(stop), send_buffers_(send_buffers), piece_(piece) {
    REHEARSE_MPI(MPI_Comm_dup(world, &comm_));
    REHEARSE_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    REHEARSE_MPI(MPI_Comm_rank(comm_, &rank_));
    receiver_ = std::thread([this] { receive_all(); });
  }
  ~MpiWire() override {
    closing_ = true;
    receiver_.join();
  }

  int rank() const override { return rank_; }
  int lanes() const override { return lanes_; }

  std::unique_ptr<Transfer> send(int to, int lane, std::uint64_t tag, const void* data, std::size_t bytes) override {
    const Header header{lane, tag, static_cast<std::int64_t>(bytes)};
    const std::lock_guard lock(sending_);  // a message's parts follow one another
    send_buffers_.send(&header, sizeof header, to, kHeader, comm_);
    for (std::size_t sent = 0; sent < bytes; sent += piece_)
      send_buffers_.send(static_cast<const char*>(data) + sent, std::min(piece_, bytes - sent), to, kBody, comm_);
    return std::make_unique<Sent>();
  }
  void post(int to, int lane, std::uint64_t tag, std::string bytes) override {
    send(to, lane, tag, bytes.data(), bytes.size());
  }
  std::unique_ptr<Transfer> receive(int from, int lane, std::uint64_t tag, void* data, std::size_t bytes) override {
    auto received = std::make_unique<Received>(*this, Key{from, lane, tag}, data, bytes);
    {
      const std::lock_guard lock(mutex_);
      expected_[received->key].push_back(received.get());
      match(received->key);  // may throw: who is expected is taken away with the transfer, which wants the mutex
    }
    return received;
  }

  void wait(Transfer& transfer) override {
    const Clock::time_point deadline = Clock::now() + limit_;
    while (!look(transfer)) {
      const int peer = std::get<0>(static_cast<Received&>(transfer).key);
      if (stop_.requested()) throw Stopped({peer});
      if (limit_.count() > 0 && Clock::now() >= deadline) throw DeadlineError({peer});
    }
  }

  bool look(Transfer& transfer) override {
    auto* received = dynamic_cast<Received*>(&transfer);
    if (received == nullptr) return true;
    std::unique_lock lock(mutex_);
    const auto done = [&] { return received->done || error_ != nullptr; };
    come_.wait_until(lock, Clock::now() + kLook, done);
    if (!received->done && error_ != nullptr) std::rethrow_exception(error_);
    return received->done;
  }

 private:
  struct Sent : Transfer {};  // it is a copy that goes
  struct Received : Transfer {
    Received(MpiWire& w, Key k, void* d, std::size_t n) : wire(w), key(std::move(k)), data(d), bytes(n) {}
    ~Received() override {
      const std::lock_guard lock(wire.mutex_);
      const auto found = wire.expected_.find(key);
      if (done || found == wire.expected_.end()) return;
      std::erase(found->second, this);
      if (found->second.empty()) wire.expected_.erase(found);
    }
    Received(const Received&) = delete;
    Received& operator=(const Received&) = delete;

    MpiWire& wire;
    const Key key;
    void* const data;
    const std::size_t bytes;
    bool done = false;
  };

  // With the mutex held: what has come to whoever waits for it, both in order.
  void match(const Key& key) {
    const auto waits = expected_.find(key);
    const auto there = arrived_.find(key);
    if (waits == expected_.end() || there == arrived_.end()) return;
    Received& r = *waits->second.front();
    const std::string& bytes = there->second.front();
    REHEARSE_CHECK(bytes.size() == r.bytes, "a message of {} bytes from rank {}, {} expected", bytes.size(),
                   std::get<0>(key), r.bytes);
    if (r.bytes > 0) std::memcpy(r.data, bytes.data(), r.bytes);
    r.done = true;
    waits->second.pop_front();
    if (waits->second.empty()) expected_.erase(waits);
    there->second.pop_front();
    if (there->second.empty()) arrived_.erase(there);
  }

  void receive_all() {
    try {
      Backoff backoff;
      while (!closing_) {
        if (receive_next())
          backoff = {};
        else
          backoff.pause();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      come_.notify_all();
    }
  }

  struct Incoming {
    Header header;
    std::string bytes;
  };

  // Whether something came.
  bool receive_next() {
    auto incoming = std::make_unique<Incoming>();
    const int from = receive_part(MPI_ANY_SOURCE, kHeader, &incoming->header, sizeof(Header), incoming);
    if (from < 0) return false;
    const Header header = incoming->header;
    std::string& bytes = incoming->bytes;
    bytes.resize(static_cast<std::size_t>(header.bytes));
    for (std::size_t come = 0; come < bytes.size();) {
      const std::size_t part = std::min(piece_, bytes.size() - come);
      for (Backoff backoff; receive_part(from, kBody, bytes.data() + come, part, incoming) < 0; backoff.pause())
        if (closing_) return false;
      come += part;
    }
    const std::lock_guard lock(mutex_);
    const Key key{from, static_cast<int>(header.lane), header.tag};
    arrived_[key].push_back(std::move(bytes));
    match(key);
    come_.notify_all();
    return true;
  }

  // A message of MPI into memory of `owner`. Whom it is from; -1 if none is there, or the wire closes: memory that MPI
  // may still write to stays then, as long as the process does.
  int receive_part(int from, int tag, void* data, std::size_t bytes, std::unique_ptr<Incoming>& owner) {
    int there = 0, count = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    REHEARSE_MPI(MPI_Improbe(from, tag, comm_, &there, &message, &status));
    if (there == 0) return -1;
    REHEARSE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    REHEARSE_CHECK(static_cast<std::size_t>(count) == bytes, "a part of {} bytes from rank {}, {} expected", count,
                   status.MPI_SOURCE, bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    REHEARSE_MPI(MPI_Imrecv(data, count, MPI_BYTE, &message, &request));
    int done = 0;
    for (Backoff backoff;; backoff.pause()) {
      REHEARSE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done != 0) return status.MPI_SOURCE;
      if (!closing_) continue;
      static_cast<void>(owner.release());
      return -1;
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  const int lanes_;
  const std::chrono::milliseconds limit_;
  const Stop& stop_;
  SendBuffers& send_buffers_;
  const std::size_t piece_;
  std::mutex sending_;
  std::mutex mutex_;  // of what follows
  std::condition_variable come_;
  std::map<Key, std::deque<Received*>> expected_;
  std::map<Key, std::deque<std::string>> arrived_;
  std::exception_ptr error_;
  std::atomic<bool> closing_ = false;
  std::thread receiver_;  // last: it uses all the above
};

}  // namespace

std::unique_ptr<Wire> make_mpi_wire(MPI_Comm world, int lanes, std::chrono::milliseconds limit, const Stop& stop,
                                    SendBuffers& send_buffers, std::size_t piece) {
  return std::make_unique<MpiWire>(world, lanes, limit, stop, send_buffers, piece);
}

}  // namespace rehearse::execute
