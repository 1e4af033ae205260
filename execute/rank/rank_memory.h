// The two memories of a rank on the CPU. Offsets count through both (sim/program/link/places.h): below `host_begin`
// they are bytes of the arena that stands for the device's memory, from there on bytes of the arena of the host's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rehearse::execute {

struct RankMemory {
  std::byte* arena = nullptr;
  std::byte* host = nullptr;  // nullptr: the rank has nothing there
  std::int64_t host_begin = 0;

  // Implicit, for ranks that have one memory.
  RankMemory(std::byte* only) : arena(only) {}
  RankMemory() = default;

  std::byte* at(std::int64_t offset) const {
    return host != nullptr && offset >= host_begin ? host + (offset - host_begin) : arena + offset;
  }
};

}  // namespace rehearse::execute
