// The GPU that performs a rank, over CUDA (cuda_gpu.cpp); a build without CUDA refuses (no_cuda.cpp).
#pragma once

#include <memory>
#include <string>

#include "execute/rank/gpu/gpu.h"

namespace rehearse::kernels::cuda {
struct BlasApi;
struct SdpaApi;
}  // namespace rehearse::kernels::cuda

namespace rehearse::execute {

// Device `index` for the calling process; its context is made. `blas`, `sdpa`: cuBLASLt's and cuDNN's functions, which
// outlive it; null: this machine's libraries. Throws std::runtime_error.
std::unique_ptr<Gpu> make_cuda_gpu(int index, const kernels::cuda::BlasApi* blas = nullptr,
                                   const kernels::cuda::SdpaApi* sdpa = nullptr);

}  // namespace rehearse::execute
