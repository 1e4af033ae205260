// What a GPU is like at one moment, as NVML (the driver's management library) has it: clocks, power, temperature, why
// its clock is held back. kernels/cuda/nvml.h reads it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace rehearse::kernels {

struct DeviceState {
  bool known = false;  // false: there is no NVML
  int sm_mhz = 0, memory_mhz = 0, max_sm_mhz = 0, temperature_c = 0;
  double power_w = 0, power_limit_w = 0;  // from Ampere on (but GA100) the mean of the last second
  bool throttle_known = false;
  std::uint64_t throttle = 0;  // nvmlClocksEventReason... bits
};

// The bits as words (NVML API reference, "NvmlClocksEventReasons"): "none", "sw_power_cap+hw_thermal".
inline std::string throttle_text(std::uint64_t reasons) {
  constexpr std::array<std::pair<std::uint64_t, const char*>, 9> kReasons = {{{0x1, "idle"},
                                                                              {0x2, "application_clocks"},
                                                                              {0x4, "sw_power_cap"},
                                                                              {0x8, "hw_slowdown"},
                                                                              {0x10, "sync_boost"},
                                                                              {0x20, "sw_thermal"},
                                                                              {0x40, "hw_thermal"},
                                                                              {0x80, "hw_power_brake"},
                                                                              {0x100, "display_clocks"}}};
  std::string text;
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) == 0) continue;
    text += (text.empty() ? "" : "+") + std::string(name);
    reasons &= ~bit;
  }
  if (reasons != 0) text += text.empty() ? "other" : "+other";
  return text.empty() ? "none" : text;
}

}  // namespace rehearse::kernels
