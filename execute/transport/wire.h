// Bytes between processes over Gloo's TCP transport: every rank connected with every other, several times over
// ("lanes"), so that transfers of different groups share a link as they would on a real network and do not queue behind
// one another. A transfer names its peer, lane and tag; what meets is matched by these, in order if they are equal.
// Waits end with Stopped or DeadlineError, which Gloo's own timeouts cannot do without breaking all connections.
// Thread-safe, but a Transfer belongs to one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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

  virtual ~Wire() = default;  // waits for posted letters to be fetched, unless stopped

  virtual int rank() const = 0;
  virtual int lanes() const = 0;
  // `data` must live until the transfer was waited for or is gone.
  virtual std::unique_ptr<Transfer> send(int to, int lane, std::uint64_t tag, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int from, int lane, std::uint64_t tag, void* data, std::size_t bytes) = 0;
  virtual void wait(Transfer& transfer) = 0;
  // Whether it is done by kLook from now.
  virtual bool look(Transfer& transfer) = 0;
  // Sends and keeps the bytes as long as it takes; never waits.
  virtual void post(int to, int lane, std::uint64_t tag, std::string letter) = 0;
};

// Connects with all others, which must do the same. `lost` is told of a rank whose connection broke and must raise
// `stop`. Throws WaitEnded if a rank does not come in time or the run is stopped before, std::exception if connections
// cannot be made.
std::unique_ptr<Wire> make_gloo_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost);

// Over plain sockets, each rank connected with rank 0 alone: for control, where numbers go another way.
std::unique_ptr<Wire> make_socket_wire(const WireOptions& options, const Stop& stop, std::function<void(int)> lost);

}  // namespace rehearse::execute
