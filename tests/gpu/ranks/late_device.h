// Kernels that are queued on a stream of a LateGpu: every call is kept with its arguments and made later, on the CPU.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "tests/gpu/ranks/late_gpu.h"

namespace rehearse {

std::unique_ptr<kernels::Device> make_late_device(LateGpu& gpu, execute::Gpu::Stream stream);

}  // namespace rehearse
