// What the kernels of a CUDA device share: the stream and the workspace.
#include "kernels/cuda/cuda_device.h"

#include "sim/base/check.h"

namespace rehearse::kernels::cuda {

CudaDevice::CudaDevice(Stream& stream, Options options, void* workspace, std::size_t workspace_bytes)
    : stream_(stream), options_(options), workspace_(workspace), workspace_bytes_(workspace_bytes) {
  REHEARSE_CHECK(workspace && workspace_bytes >= kLeastWorkspace, "a workspace of {} bytes, {} are needed",
                 workspace_bytes, kLeastWorkspace);
}

CudaDevice::~CudaDevice() = default;

void* CudaDevice::workspace_of(std::size_t bytes) const {
  REHEARSE_CHECK(bytes <= workspace_bytes_, "{} bytes of a workspace of {}", bytes, workspace_bytes_);
  return workspace_;
}

}  // namespace rehearse::kernels::cuda
