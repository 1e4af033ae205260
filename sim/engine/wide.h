// 128-bit products of the engine's integer arithmetic, and the two roundings it uses.
#pragma once

#include <cstdint>

namespace rehearse::engine {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

inline constexpr std::int64_t kPicosecondsPerSecond = 1'000'000'000'000;

// a * b / c, rounded up or down; a, b >= 0, c > 0. The result must fit.
constexpr std::int64_t mul_div_up(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>((static_cast<Int128>(a) * b + c - 1) / c);
}
constexpr std::int64_t mul_div_down(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>(static_cast<Int128>(a) * b / c);
}

}  // namespace rehearse::engine
