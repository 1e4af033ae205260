// The device's matrix products: which cuBLASLt problem each call is, and the state that a CudaDevice keeps for them.
#pragma once

#include <cstddef>
#include <optional>

#include "kernels/cuda/blas.h"
#include "kernels/cuda/stream_timer.h"
#include "kernels/device.h"

namespace rehearse::kernels::cuda {

// The end of the workspace that is not cuBLASLt's: for a bias that must change its type (131,072 columns of fp32).
inline constexpr std::size_t kBiasBytes = std::size_t{512} << 10;

struct BlasState {
  Blas blas;
  void* bias;                        // kBiasBytes
  std::optional<StreamTimer> timer;  // of a device that finds out which algorithms are the fastest

  BlasState(const BlasApi& api, void* workspace, std::size_t bytes)
      : blas(api, workspace, bytes - kBiasBytes), bias(static_cast<char*>(workspace) + bytes - kBiasBytes) {}
};

// What gemm(shape, ...) asks for with operands of these types, aligned as allocations are. Throws DeviceError for types
// that cuBLASLt has no product for: A and B of one type; C of theirs, or fp32. `fused`: what gemm_gelu,
// gemm_gelu_backward and gemm_bias_grad ask for where Blas::supports it; elsewhere they are this product without, and
// kernels of our own.
MatmulProblem gemm_problem(const Gemm& shape, DType a, DType b, bool bias, DType c, bool tf32,
                           Fused fused = Fused::none);

}  // namespace rehearse::kernels::cuda
