// What the parts of the emulator share: the block that runs (block.cpp), the checks of memory (checked.cpp), and the
// device's memory (memory.cpp). One launch runs at a time, whichever thread of the host made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

// Device memory is one range of addresses, so that an access can be judged by its address alone.
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool holds(const void* p) const { return p >= begin && p < end; }
};
Range device_range();
// Whether [p, p + bytes) lies inside one allocation.
bool allocated(const void* p, std::size_t bytes);
Range dynamic_shared_range();

// Who runs: accesses of the same segment are in order. A thread begins a new one at every barrier it passes.
struct Segment {
  std::uint32_t block = 0, thread = 0;
  std::uint32_t block_barriers = 0, warp_barriers = 0;
};
// 0: no kernel runs.
std::uint32_t new_segment(const Segment& s);
void set_segment(std::uint32_t segment);
void begin_checks();       // of a launch
std::string end_checks();  // what they found, the first of it; empty: nothing
void report(const std::string& finding);
[[noreturn]] void abandon();  // the block: what the thread would do next cannot be done
std::string where();          // "thread (1,0,0) of block (0,0,0)"

}  // namespace emulator
