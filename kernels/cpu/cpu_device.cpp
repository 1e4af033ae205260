// What the kernels of a CPU device share: scratch memory.
#include "kernels/cpu/cpu_device.h"

namespace rehearse::kernels::cpu {

float* CpuDevice::scratch(int worker, std::int64_t n) {
  auto& memory = scratch_[static_cast<std::size_t>(worker)];
  if (memory.size() < static_cast<std::size_t>(n)) memory.resize(static_cast<std::size_t>(n));
  return memory.data();
}

std::unique_ptr<Device> make_unchecked(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace rehearse::kernels::cpu
