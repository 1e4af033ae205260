// A build without the CUDA toolkit: there is never a device.
#include <stdexcept>

#include "kernels/cuda/cuda.h"

namespace rehearse::kernels::cuda {

std::string why_no_device() {
  return "this program was built without CUDA (cmake found no nvcc, or REHEARSE_CUDA is OFF)";
}

int device_count() {
  return 0;
}

void leave_device() {}

DeviceFacts device_facts(int) {
  throw std::runtime_error("no CUDA device: " + why_no_device());
}

}  // namespace rehearse::kernels::cuda
