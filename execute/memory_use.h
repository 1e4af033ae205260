// What a run holds besides what was predicted for it: the memory plan's arena of each rank (sim/account/stage_memory.h
// counts it for a simulation and a measurement alike) is all that tensors lie in; the rest of the process is bounded
// here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rehearse::execute {

// Bytes of [begin, begin + bytes) that are in memory now, counted in pages (mincore), at most `bytes`.
std::int64_t resident_bytes(const std::byte* begin, std::int64_t bytes);

// The program, its libraries, the lowered plan, the ranks' timelines and the text that is trained on by default.
inline constexpr std::int64_t kProgramBytes = std::int64_t{24} << 20;
// Of each thread that computes: its stack, its scratch memory, and the panels that a matrix product copies
// (kernels/cpu/gemm.cpp).
inline constexpr std::int64_t kThreadBytes = std::int64_t{8} << 20;

// What a process may hold besides its arenas. Messages between pipeline stages that were sent and not yet taken, other
// data than the default, what is recorded of the ops (-o) and the fp32 copies that the CPU makes of 16-bit operands
// (kernels/cpu/cpu_device.h) are left out. A rank's StepValues lie behind its arena.
inline constexpr std::int64_t beside_arenas(std::int64_t ranks, std::int64_t threads_per_rank) {
  return kProgramBytes + ranks * threads_per_rank * kThreadBytes;
}

}  // namespace rehearse::execute
