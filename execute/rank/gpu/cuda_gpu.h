// The GPU that performs a rank, over CUDA (cuda_gpu.cpp); a build without CUDA refuses (no_cuda.cpp).
#pragma once

#include <memory>
#include <string>

#include "execute/rank/gpu/gpu.h"

namespace rehearse::kernels::cuda {
struct BlasApi;
}

namespace rehearse::execute {

// Device `index` for the calling process; its context is made. `blas`: cuBLASLt's functions, which outlive it; null:
// this machine's library. Throws std::runtime_error.
std::unique_ptr<Gpu> make_cuda_gpu(int index, const kernels::cuda::BlasApi* blas = nullptr);

}  // namespace rehearse::execute
