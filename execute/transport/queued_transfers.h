// Transfers between ranks that run on a GPU's streams beside its kernels: queued and not waited for. Whoever queues
// them asks meanwhile whether something went wrong, from any thread, and ends them with abort(). nccl/ has them over
// NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "execute/transport/communicator.h"
#include "sim/program/op.h"

namespace rehearse::execute {

struct QueuedMessage {
  bool send = false;
  int peer = 0, channel = 0;
  void* data = nullptr;  // only read if sent
  std::int64_t elements = 0;
};

// A transfer that could not be queued because something beneath it failed, which may be another rank's end.
class BrokenTransfer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class QueuedTransfers {
 public:
  virtual ~QueuedTransfers() = default;

  // All throw BrokenTransfer, Stopped, DeadlineError.
  // Elements as program::Collective counts them; `in` and `out` may be the same, or our own part of the whole. Ranks of
  // a group call alike, in one order. `stream` is Gpu::native().
  virtual void collective(const program::Collective& c, DType type, const void* in, void* out, void* stream) = 0;
  // The same of an all-to-all of unequal parts; of `parts` what we send and get counts, in the order of the group.
  virtual void all_to_all_parts(program::GroupId group, DType type, const void* in, void* out, const Parts& parts,
                                void* stream) = 0;
  // Together: none waits for another of them.
  virtual void exchange(std::span<const QueuedMessage> messages, DType type, void* stream) = 0;

  // What has gone wrong meanwhile; empty: nothing. From any thread.
  virtual std::string problem() = 0;
  // Ends whatever is under way, here; others find out. From any thread; nothing can be queued any more.
  virtual void abort() = 0;
};

}  // namespace rehearse::execute
