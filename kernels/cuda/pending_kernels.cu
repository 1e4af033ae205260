// What is still to come: every call throws.
#include "kernels/cuda/cuda_device.h"

namespace rehearse::kernels::cuda {
namespace {

[[noreturn]] void pending(const char* name) {
  throw DeviceError(std::string(name) + " has no CUDA kernel yet");
}

}  // namespace

void CudaDevice::conv_forward(const ConvShape&, In, In, In, Out) {
  pending("conv_forward");
}
void CudaDevice::conv_backward_input(const ConvShape&, In, In, Out) {
  pending("conv_backward_input");
}
void CudaDevice::conv_backward_weight(const ConvShape&, In, In, Out, Out) {
  pending("conv_backward_weight");
}
void CudaDevice::pool_forward(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, In, Out,
                              std::int32_t*) {
  pending("pool_forward");
}
void CudaDevice::pool_backward(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, In,
                               const std::int32_t*, Out) {
  pending("pool_backward");
}

}  // namespace rehearse::kernels::cuda
