// Transfers over NCCL: a communicator for each split of the world (splits.h), made when this is made, by all ranks
// together. The world's own communicator does not block: making it and splitting it is polled until it is done, the run
// is stopped or its deadline passes. Its parts, over which everything is sent, block, as those of PyTorch do: without
// that each group of calls costs a thread and a poll. So a call may wait inside NCCL for others, on first use of a
// communicator mostly; whoever watches the issuing thread ends it with abort() from another one, which also ends what
// runs on the device. (NCCL user guide, "Communicator creation and management".)
#pragma once

#include <chrono>
#include <memory>

#include "execute/transport/nccl/nccl_api.h"
#include "execute/transport/nccl/splits.h"
#include "execute/transport/queued_transfers.h"
#include "execute/transport/stop.h"

namespace rehearse::execute::nccl {

struct NcclOptions {
  int rank = 0, ranks = 1;
  ncclUniqueId id{};                          // the same on all ranks, made by one
  std::chrono::milliseconds timeout{60'000};  // for communicators to be made, and for calls to be taken
};

// Oldest library that has what is needed (ncclCommSplit).
inline constexpr int kOldestNccl = 21800;

// The calling thread's current device is the rank's. `api`, `splits` and `stop` outlive it. Throws NcclError,
// DeadlineError if other ranks do not come, Stopped.
std::unique_ptr<QueuedTransfers> make_nccl_transfers(const Api& api, const Splits& splits, const NcclOptions& options,
                                                     const Stop& stop);

}  // namespace rehearse::execute::nccl
