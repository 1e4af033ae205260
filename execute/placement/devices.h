// The GPUs of this machine before a run, asked for in a process of its own: the one that asks gets no CUDA context, no
// threads of a driver, and does not hang if a driver does.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "execute/rank/gpu/gpu_maker.h"

namespace rehearse::execute {

struct Devices {
  std::vector<DeviceMemory> devices;
  std::string why_none;  // to stand after "no CUDA device: ", if there are none
};

// Call it before the process has threads. What is free is asked for only if wanted: it takes a context on each device.
// A driver that does not answer for `patience` has none.
Devices find_devices(bool free_memory, std::chrono::seconds patience = std::chrono::seconds(60));

}  // namespace rehearse::execute
