// Whether CUDA can be used here, and what the devices are. The one header of this folder that needs no toolkit: a build
// without nvcc has it too and answers that it was built without (absent.cpp). A build with it starts on machines
// without a driver as well, since the runtime is linked statically and looks for the driver when first called.
#pragma once

#include <cstdint>
#include <string>

namespace rehearse::kernels::cuda {

// Why no CUDA device can be used, to stand after "no CUDA device: "; empty if one can.
std::string why_no_device();
int device_count();  // 0 if none can be used

// What the runtime knows of a device; NVML knows more (calibrate/).
struct DeviceFacts {
  int index = 0;
  std::string name;
  std::string pci_bus_id;    // "0000:1b:00.0"
  std::string uuid;          // "GPU-...", as nvidia-smi prints it
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  std::int64_t shared_bytes_per_block = 0, shared_bytes_per_multiprocessor = 0;  // the first after opting in
  int threads_per_multiprocessor = 0, registers_per_multiprocessor = 0;
  std::int64_t clock_khz = 0, memory_clock_khz = 0;  // highest
  int memory_bus_bits = 0;
  int copy_engines = 0;
  int driver_version = 0, runtime_version = 0;  // 13000 is 13.0
};
// The process gives back what it has on its device: the context and all that is in it. Nothing of it may be in use.
void leave_device();

// Throws DeviceError (runtime.h) if there is no such device.
DeviceFacts device_facts(int device);

}  // namespace rehearse::kernels::cuda
