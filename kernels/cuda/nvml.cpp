#include "kernels/cuda/nvml.h"

#include <dlfcn.h>

#include <array>
#include <type_traits>

namespace rehearse::kernels::cuda {

// Return 0 for success; handles are opaque pointers (NVML API reference).
struct Nvml::Api {
  using Device = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus_id)(const char*, Device*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;  // 1: multiprocessors, 2: memory
  int (*max_clock)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // mW
  int (*power_limit)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;  // 0: of the GPU
  int (*throttle)(Device, unsigned long long*) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;

  void* library = nullptr;
  bool started = false;
  Device device = nullptr;

  template <typename F>
  bool find(const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    return function != nullptr;
  }
};

Nvml::Nvml(const std::string& pci_bus_id) : api_(std::make_unique<Api>()) {
  Api& a = *api_;
  a.library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (a.library == nullptr) return;
  const bool whole =
      a.find("nvmlInit_v2", a.init) && a.find("nvmlShutdown", a.shutdown) &&
      a.find("nvmlDeviceGetHandleByPciBusId_v2", a.by_bus_id) && a.find("nvmlDeviceGetClockInfo", a.clock) &&
      a.find("nvmlDeviceGetMaxClockInfo", a.max_clock) && a.find("nvmlDeviceGetPowerUsage", a.power) &&
      a.find("nvmlDeviceGetEnforcedPowerLimit", a.power_limit) && a.find("nvmlDeviceGetTemperature", a.temperature) &&
      a.find("nvmlSystemGetDriverVersion", a.driver);
  if (!whole || a.init() != 0) return;
  a.started = true;
  // Renamed in newer drivers, which keep the old name too.
  if (!a.find("nvmlDeviceGetCurrentClocksThrottleReasons", a.throttle))
    a.find("nvmlDeviceGetCurrentClocksEventReasons", a.throttle);
  if (a.by_bus_id(pci_bus_id.c_str(), &a.device) != 0) a.device = nullptr;
}

Nvml::~Nvml() {
  if (api_->started) api_->shutdown();
}

DeviceState Nvml::state() const {
  const Api& a = *api_;
  DeviceState s;
  if (a.device == nullptr) return s;
  s.known = true;
  unsigned value = 0;
  const auto read = [&](int code, auto& out, double unit = 1) {
    if (code == 0) out = static_cast<std::remove_reference_t<decltype(out)>>(value * unit);
  };
  read(a.clock(a.device, 1, &value), s.sm_mhz);
  read(a.clock(a.device, 2, &value), s.memory_mhz);
  read(a.max_clock(a.device, 1, &value), s.max_sm_mhz);
  read(a.power(a.device, &value), s.power_w, 1e-3);
  read(a.power_limit(a.device, &value), s.power_limit_w, 1e-3);
  read(a.temperature(a.device, 0, &value), s.temperature_c);
  unsigned long long reasons = 0;
  s.throttle_known = a.throttle != nullptr && a.throttle(a.device, &reasons) == 0;
  s.throttle = reasons;
  return s;
}

std::string Nvml::driver_version() const {
  std::array<char, 81> text{};
  return api_->started && api_->driver(text.data(), text.size() - 1) == 0 ? text.data() : "";
}

}  // namespace rehearse::kernels::cuda
