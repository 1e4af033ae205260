// A build without the CUDA toolkit: callers ask kernels::cuda::why_no_device() first.
#include "calibrate/cuda/cuda_bench.h"
#include "sim/base/check.h"

namespace rehearse::calibrate::gpu {

std::unique_ptr<Bench> make_cuda_bench(int device, const kernels::cuda::BlasApi*, bool) {
  REHEARSE_CHECK(false, "device {}: built without CUDA", device);
  return nullptr;
}

}  // namespace rehearse::calibrate::gpu
