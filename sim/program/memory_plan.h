// Memory of a role, from its program alone: instances live from their first write to their release in program order,
// never in simulated time, so what a simulation reports is what the Performer allocates. Where they lie: link/places.h.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

struct MemoryPeak {
  std::array<std::int64_t, kBufferClasses> at_peak{};  // bytes by class at the moment of the peak
  std::array<std::int64_t, kBufferClasses> highest{};  // each class's own highest
  std::int64_t peak_bytes = 0;
  std::string where;  // "backward micro-batch 7: layer3.mlp.up.forward"
};

// Bytes that an op's kernel allocates for itself, beside the program's buffers, and gives back when it ends; workspace.
using OwnMemory = std::function<std::int64_t(const Op&)>;

// Walks one step (persistent buffers live throughout). `alignment`: each instance is rounded up to it (default 1: the
// tensors' own bytes; the Performer uses its arena's). `on_host`: of the buffers in the host's memory, else of those in
// the device's. `own`: empty where kernels take nothing.
MemoryPeak memory_peak(const Role& role, std::int64_t alignment = 1, bool on_host = false, const OwnMemory& own = {});

}  // namespace rehearse::program
