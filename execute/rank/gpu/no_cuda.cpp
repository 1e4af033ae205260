// Instead of cuda_gpu.cpp in a build without CUDA.
#include "execute/rank/gpu/cuda_gpu.h"
#include "kernels/cuda/cuda.h"

namespace rehearse::execute {

std::unique_ptr<Gpu> make_cuda_gpu(int, const kernels::cuda::BlasApi*, const kernels::cuda::SdpaApi*) {
  throw std::runtime_error("no CUDA device: " + kernels::cuda::why_no_device());
}

}  // namespace rehearse::execute
