// The maker of ranks on this machine's GPUs, joined by NCCL; a build without NCCL performs single ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "execute/rank/gpu/gpu_maker.h"
#include "execute/transport/nccl/connect.h"

namespace rehearse::execute {

struct CudaRanksOptions {
  std::vector<DeviceMemory> devices;    // what is known of this machine's; empty: nothing
  std::function<int(int rank)> device;  // of a rank here
  GpuOptions rank;
  bool alone = false;  // one rank, which meets nobody
};

// Throws InputError if ranks are to meet and there is no NCCL.
std::unique_ptr<RankMaker> make_cuda_ranks(const CudaRanksOptions& options);

// GpuMaker::Parts::connect over a connector, which outlives the ranks.
std::function<std::unique_ptr<QueuedTransfers>(Run& run, int rank)> connect_over(NcclConnector& connector);

}  // namespace rehearse::execute
