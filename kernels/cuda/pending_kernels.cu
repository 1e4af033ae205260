// What is still to come: every call throws.
#include "kernels/cuda/cuda_device.h"

namespace rehearse::kernels::cuda {
namespace {

[[noreturn]] void pending(const char* name) {
  throw DeviceError(std::string(name) + " has no CUDA kernel yet");
}

}  // namespace

void CudaDevice::rope(const AttentionShape&, bool, Out) {
  pending("rope");
}
void CudaDevice::embedding_forward(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const std::int32_t*, In,
                                   Out) {
  pending("embedding_forward");
}
void CudaDevice::embedding_backward(std::int64_t, std::int64_t, std::int64_t, std::int64_t, In, const std::int32_t*,
                                    Out) {
  pending("embedding_backward");
}
void CudaDevice::cross_entropy_forward(std::int64_t, std::int64_t, std::int64_t, double, In, const std::int32_t*,
                                       float*, float*) {
  pending("cross_entropy_forward");
}
void CudaDevice::cross_entropy_max(std::int64_t, std::int64_t, std::int64_t, std::int64_t, In, float*) {
  pending("cross_entropy_max");
}
void CudaDevice::cross_entropy_exp_sum(std::int64_t, std::int64_t, std::int64_t, std::int64_t, In, const std::int32_t*,
                                       const float*, float*) {
  pending("cross_entropy_exp_sum");
}
void CudaDevice::cross_entropy_loss(std::int64_t, double, const float*, float*) {
  pending("cross_entropy_loss");
}
void CudaDevice::cross_entropy_backward(std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, const float*,
                                        In, const std::int32_t*, const float*, std::int64_t, const float*, std::int64_t,
                                        Out) {
  pending("cross_entropy_backward");
}
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
void CudaDevice::adamw(std::int64_t, const AdamW&, In, const float*, Out, float*, float*, float*) {
  pending("adamw");
}
void CudaDevice::sgd(std::int64_t, const Sgd&, In, const float*, Out, float*, float*) {
  pending("sgd");
}
void CudaDevice::sum_squares(std::int64_t, In, float*) {
  pending("sum_squares");
}
void CudaDevice::clip_coefficient(double, const float*, const float*, float*) {
  pending("clip_coefficient");
}
void CudaDevice::update_loss_scale(const LossScaleRule&, const float*, float*) {
  pending("update_loss_scale");
}

}  // namespace rehearse::kernels::cuda
