// NCCL between the GPUs in reach, as nccl-tests times it: one process, a communicator a GPU, group calls, sizes from 8
// B to 1 GB, the full size of each collective; algorithm and protocol NCCL's choice, then pinned by NCCL_ALGO and
// NCCL_PROTO (read when a communicator is made).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/gpu/bench.h"

namespace rehearse::calibrate::gpu {

std::string nccl_version();  // "" where there is none

// Until `deadline` of now(); nothing with one GPU, or without NCCL. `major` of the compute capability: which algorithms
// there are.
std::vector<Transfer> nccl_times(int major, const std::function<double()>& now, double deadline);

}  // namespace rehearse::calibrate::gpu
