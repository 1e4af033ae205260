// Launches kernels. Included by every .cu file, which must compile both with nvcc and, for machines without a GPU, with
// a host compiler against the emulator (tests/gpu/emulator): so a .cu file may use what launch.h and the emulator's
// cuda_emulator.h name, and nothing else of CUDA's device side. Shared memory of a size fixed at compile time is
// declared as usual (__shared__ float x[32]); dynamic shared memory through REHEARSE_DYNAMIC_SHARED.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/runtime.h"

#ifdef __CUDACC__
// `name` points to the block's dynamic shared memory, at a multiple of 128 bytes.
#define REHEARSE_DYNAMIC_SHARED(type, name)                           \
  extern __shared__ __align__(128) unsigned char rehearse_dynamic_[]; \
  type* const name = reinterpret_cast<type*>(rehearse_dynamic_)
#else
#include <cuda_emulator.h>
#define REHEARSE_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(::emulator::dynamic_shared())
#endif

namespace rehearse::kernels::cuda {

inline constexpr std::size_t kSharedWithoutAsking = 48 << 10;  // dynamic bytes that need no attribute

// Queues kernel(args...) on `stream`; an empty grid is no launch. Arguments convert as in a call.
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            const Args&... args) {
  static_assert(sizeof...(Parameters) == sizeof...(Args), "a kernel takes all its arguments");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > kSharedWithoutAsking)
    REHEARSE_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  std::tuple<std::remove_cv_t<Parameters>...> values(static_cast<Parameters>(args)...);
#ifdef __CUDACC__
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))..., nullptr};
        REHEARSE_CUDA(
            cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes, stream));
      },
      values);
#else
  REHEARSE_CUDA(::emulator::launch(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream,
                                   [kernel, values] { std::apply(kernel, values); }));
#endif
}
template <class... Parameters, class... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, const Stream& stream,
            const Args&... args) {
  launch(kernel, grid, block, shared_bytes, stream.get(), args...);
}

}  // namespace rehearse::kernels::cuda
