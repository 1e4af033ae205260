// Routers and experts, which have no kernels on GPUs yet: execute refuses such models there
// (execute/placement/gpus.cpp).
#include "kernels/cuda/cuda_device.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr const char* kNone = "routers and experts have no kernels on GPUs";

}  // namespace

void CudaDevice::router_gate(const RouterShape&, In, float*, std::int32_t*) {
  REHEARSE_CHECK(false, "{}", kNone);
}
void CudaDevice::router_place(const RouterShape&, const std::int32_t*, std::int32_t*, float*) {
  REHEARSE_CHECK(false, "{}", kNone);
}
void CudaDevice::router_gate_backward(const RouterShape&, double, const float*, In, const std::int32_t*, const float*,
                                      const float*, Out) {
  REHEARSE_CHECK(false, "{}", kNone);
}
void CudaDevice::permute(const PermuteShape&, In, const std::int32_t*, Out) {
  REHEARSE_CHECK(false, "{}", kNone);
}
void CudaDevice::unpermute(const PermuteShape&, In, const std::int32_t*, const float*, Out) {
  REHEARSE_CHECK(false, "{}", kNone);
}
void CudaDevice::unpermute_backward(const PermuteShape&, In, In, const std::int32_t*, const float*, Out, float*) {
  REHEARSE_CHECK(false, "{}", kNone);
}
void CudaDevice::grouped_gemm(const GroupedShape&, In, In, const float*, Out) {
  REHEARSE_CHECK(false, "{}", kNone);
}

}  // namespace rehearse::kernels::cuda
