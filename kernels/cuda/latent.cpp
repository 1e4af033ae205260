// Latent attention, which has no kernels on GPUs yet: execute refuses such models there
// (execute/placement/gpus.cpp).
#include "kernels/cuda/cuda_device.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cuda {

void CudaDevice::latent_heads(const LatentShape&, std::int64_t, In, In, In, Out) {
  REHEARSE_CHECK(false, "latent attention has no kernels on GPUs");
}
void CudaDevice::latent_heads_backward(const LatentShape&, std::int64_t, In, Out, Out, Out) {
  REHEARSE_CHECK(false, "latent attention has no kernels on GPUs");
}

}  // namespace rehearse::kernels::cuda
