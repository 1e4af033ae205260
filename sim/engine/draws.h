// What noise.cpp and machine_jitter.cpp make of the 32-bit words that Philox draws for a counter (sim/base/random.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace rehearse::engine {

// A word of a counter.
constexpr std::uint64_t pair_of(std::int64_t high, std::int64_t low) {
  return static_cast<std::uint64_t>(high) << 32 | static_cast<std::uint64_t>(static_cast<std::uint32_t>(low));
}

// In (0, 1), with 32 bits.
constexpr double uniform(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

// Standard normal (Box and Muller 1958).
inline double normal(std::uint32_t a, std::uint32_t b) {
  return std::sqrt(-2 * std::log(uniform(a))) * std::cos(2 * std::numbers::pi * uniform(b));
}

}  // namespace rehearse::engine
