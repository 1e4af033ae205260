// Brings the ranks of a run together over NCCL: the root's unique id goes to all over the World, then every rank makes
// its communicators.
#pragma once

#include <memory>
#include <mutex>

#include "execute/rank/cpu_rank.h"
#include "execute/transport/nccl/nccl_api.h"
#include "execute/transport/nccl/nccl_transfers.h"
#include "execute/transport/nccl/splits.h"
#include "execute/transport/queued_transfers.h"

namespace rehearse::execute::nccl {

class Connector {
 public:
  explicit Connector(Api api) : api_(std::move(api)) {}
  // In the rank's thread, its device current; of all ranks of the run. The connector outlives the transfers.
  std::unique_ptr<QueuedTransfers> connect(Run& run, int rank);

 private:
  const Api api_;
  std::once_flag once_;
  std::unique_ptr<Splits> splits_;
  ncclUniqueId id_{};
};

}  // namespace rehearse::execute::nccl
