// Instead of nccl/ in a build that found no nccl.h.
#include "execute/rank/gpu/cuda_gpu.h"
#include "execute/rank/gpu/cuda_ranks.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {

std::unique_ptr<RankMaker> make_cuda_ranks(const CudaRanksOptions& options) {
  if (!options.alone)
    throw InputError(Diagnostic{"--ranks nccl", 0, 0, "", "this program was built without NCCL",
                                "install the CUDA toolkit and nccl.h (libnccl-dev), and build again"});
  GpuMaker::Parts parts;
  parts.gpu = [device = options.device](int rank) { return make_cuda_gpu(device(rank)); };
  parts.devices = options.devices;
  parts.device = options.device;
  parts.options = options.rank;
  return std::make_unique<GpuMaker>(std::move(parts));
}

std::string nccl_found(std::string& reason) {
  reason = "this program was built without NCCL";
  return "";
}

}  // namespace rehearse::execute
