// Brings the ranks of a run together over NCCL: the root's unique id goes to all of them, then every rank makes its
// communicators. Needs no header of NCCL; in a build without it there is none (no_nccl.cpp).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "execute/transport/queued_transfers.h"
#include "execute/transport/stop.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"

namespace rehearse::execute {

namespace nccl {
struct Api;
}

// What is asked of a run; outlives the connector's use of it.
struct NcclRun {
  const program::Program& program;
  const plan::RankGrid& grid;
  std::chrono::milliseconds timeout;
  const Stop& stop;
  bool root = false;                                        // whether this process has rank 0
  std::function<std::string(std::string bytes)> broadcast;  // the root's bytes, in every process
};

class NcclConnector {
 public:
  virtual ~NcclConnector() = default;
  // In the rank's thread, its device current; of all ranks of the run. The connector outlives the transfers.
  virtual std::unique_ptr<QueuedTransfers> connect(const NcclRun& run, int rank) = 0;
};

// Over the library of this machine. Throws InputError if there is none.
std::unique_ptr<NcclConnector> load_nccl();
// Over these functions.
std::unique_ptr<NcclConnector> make_nccl_connector(nccl::Api api);

}  // namespace rehearse::execute
