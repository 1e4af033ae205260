// The maker of ranks on this machine's GPUs, joined by NCCL (cuda_ranks.cpp in transport/nccl/; no_nccl.cpp in a build
// without its header, which performs single ranks).
#pragma once

#include <memory>
#include <string>

#include "execute/rank/gpu/gpu_maker.h"

namespace rehearse::execute {

struct CudaRanksOptions {
  std::vector<DeviceRoom> devices;      // what is known of this machine's; empty: nothing
  std::function<int(int rank)> device;  // of a rank here
  GpuOptions rank;
  bool alone = false;  // one rank, which meets nobody
};

// Throws InputError if ranks are to meet and there is no NCCL.
std::unique_ptr<RankMaker> make_cuda_ranks(const CudaRanksOptions& options);

// "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"; empty, with the reason, if there is none.
std::string nccl_found(std::string& reason);

}  // namespace rehearse::execute
