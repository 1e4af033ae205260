// Bytes between processes. Ranks may be connected several times over ("lanes"), so that transfers of different groups
// share a link as they would on a real network and do not queue behind one another. A transfer names its peer, lane and
// tag; sends and receives are matched by these, in order if they are equal. Waits end with Stopped or DeadlineError.
// Thread-safe, but a Transfer belongs to one thread. gloo/gloo_wire.h has one over Gloo, mpi/mpi_wire.h one over MPI,
// processes/socket_wire.h one that is for control alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "execute/transport/communicator.h"
#include "execute/transport/stop.h"

namespace rehearse::execute {

struct WireOptions {
  int rank = 0, ranks = 1, lanes = 1;
  std::string folder;     // where the ranks find one another
  std::string interface;  // network interface; empty: the loopback if `loopback`, else the host name's address
  bool loopback = false;
  std::chrono::milliseconds timeout{60'000};  // of waits
};

class Wire {
 public:
  class Transfer {
   public:
    virtual ~Transfer() = default;  // one under way is given up
  };

  // What was posted still comes to who fetches it, unless the run is stopped: one that keeps posted messages itself
  // waits for that; MPI's go on in SendBuffers, which outlive it.
  virtual ~Wire() = default;

  virtual int rank() const = 0;
  virtual int lanes() const = 0;
  // `data` must live until the transfer was waited for or is gone.
  virtual std::unique_ptr<Transfer> send(int to, int lane, std::uint64_t tag, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int from, int lane, std::uint64_t tag, void* data, std::size_t bytes) = 0;
  virtual void wait(Transfer& transfer) = 0;
  // Whether it is done by kLook from now.
  virtual bool look(Transfer& transfer) = 0;
  // Sends and keeps the bytes as long as it takes; never waits.
  virtual void post(int to, int lane, std::uint64_t tag, std::string bytes) = 0;
};

// Lane 0 is for messages and control, the others for groups.
inline constexpr int kControlLane = 0;

// Tags are made of these parts and differ wherever two transfers between the same ranks may be under way at once.
enum class TagKind : std::uint64_t { collective = 1, message = 2, loss = 3, control = 4, served = 5 };
std::uint64_t make_tag(TagKind kind, std::int64_t queue, std::int64_t sequence, std::int64_t step = 0,
                       std::int64_t segment = 0);

}  // namespace rehearse::execute
