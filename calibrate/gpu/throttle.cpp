// Needs no library: the words for NVML's bits (NVML API reference, "NvmlClocksEventReasons").
#include <array>
#include <utility>

#include "calibrate/cuda/nvml.h"

namespace rehearse::calibrate::gpu {

std::string throttle_text(unsigned long long reasons) {
  constexpr std::array<std::pair<unsigned long long, const char*>, 9> kReasons = {{{0x1, "idle"},
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

}  // namespace rehearse::calibrate::gpu
