// Memory of a role, from its program alone: instances live from their first write to their release in program order,
// never in simulated time, so the plan a simulation reports is the one the Performer allocates by.
#pragma once

#include <array>
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

// Walks one step (persistent buffers live throughout). `alignment`: each instance is rounded up to it (default 1: the
// tensors' own bytes; the Performer uses its arena's).
MemoryPeak memory_peak(const Role& role, std::int64_t alignment = 1);

// Places instances in one arena, for the Performer and for fragmentation: offsets such that no two instances that live
// at the same time overlap (first fit in program order). `arena_bytes` is what the arena needs.
struct Placement {
  BufferId buffer;
  int micro_batch;  // instance; -1 for persistent and step
  int slot;         // slot instances: their slot; else -1
  std::int64_t offset, bytes;
};
struct MemoryPlan {
  std::vector<Placement> placements;
  std::int64_t arena_bytes = 0;
};
MemoryPlan plan_memory(const Role& role, std::int64_t alignment = 256);

}  // namespace rehearse::program
