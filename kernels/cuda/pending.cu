// What is still to come: every call throws.
#include "kernels/cuda/cuda_device.h"

namespace rehearse::kernels::cuda {
namespace {

[[noreturn]] void pending(const char* name) {
  throw DeviceError(std::string(name) + " has no CUDA kernel yet");
}

}  // namespace

void CudaDevice::gemm(const Gemm&, In, In, In, Out) {
  pending("gemm");
}
void CudaDevice::flash_forward(const AttentionShape&, const DropoutSite&, In, Out, float*) {
  pending("flash_forward");
}
void CudaDevice::flash_backward(const AttentionShape&, const DropoutSite&, In, In, In, const float*, Out) {
  pending("flash_backward");
}
void CudaDevice::attention_scores(const AttentionShape&, In, Out) {
  pending("attention_scores");
}
void CudaDevice::attention_softmax(const AttentionShape&, In, Out) {
  pending("attention_softmax");
}
void CudaDevice::attention_dropout(const AttentionShape&, const DropoutSite&, In, Out, std::uint8_t*) {
  pending("attention_dropout");
}
void CudaDevice::attention_context(const AttentionShape&, In, In, Out) {
  pending("attention_context");
}
void CudaDevice::attention_context_backward_probs(const AttentionShape&, In, In, Out) {
  pending("attention_context_backward_probs");
}
void CudaDevice::attention_context_backward_value(const AttentionShape&, In, In, Out) {
  pending("attention_context_backward_value");
}
void CudaDevice::attention_dropout_backward(const AttentionShape&, double, In, const std::uint8_t*, Out) {
  pending("attention_dropout_backward");
}
void CudaDevice::attention_softmax_backward(const AttentionShape&, In, In, Out) {
  pending("attention_softmax_backward");
}
void CudaDevice::attention_scores_backward_query(const AttentionShape&, In, In, Out) {
  pending("attention_scores_backward_query");
}
void CudaDevice::attention_scores_backward_key(const AttentionShape&, In, In, Out) {
  pending("attention_scores_backward_key");
}

}  // namespace rehearse::kernels::cuda
