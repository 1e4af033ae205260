// What NVML (the driver's management library) says of a GPU: clocks, power, temperature, why it is held back. Loaded
// when asked for; its functions are declared here after the NVML API reference, since toolkits need not have its
// header. Only reads: nothing is ever set.
#pragma once

#include <memory>
#include <string>

#include "kernels/device_state.h"

namespace rehearse::kernels::cuda {

class Nvml {
 public:
  // `pci_bus_id` as the CUDA runtime prints it. Without the library, or a GPU it knows, state() is unknown.
  explicit Nvml(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  DeviceState state() const;
  std::string driver_version() const;  // "" if it cannot tell

 private:
  struct Api;
  std::unique_ptr<Api> api_;
};

}  // namespace rehearse::kernels::cuda
