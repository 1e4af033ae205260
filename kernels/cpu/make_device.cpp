// Makes the CPU device, after checking that this machine can run it. Compiled for any x86-64, unlike the kernels.
#include <stdexcept>

#include "kernels/device.h"
#include "sim/base/check.h"

namespace rehearse::kernels {
namespace cpu {
std::unique_ptr<Device> make_unchecked(int threads);
}

std::unique_ptr<Device> make_cpu_device(int threads) {
  REHEARSE_CHECK(threads >= 1, "a device of {} threads", threads);
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    throw std::runtime_error("this processor lacks AVX2 and FMA (x86-64-v3), which the CPU kernels need");
  }
  return cpu::make_unchecked(threads);
}

}  // namespace rehearse::kernels
