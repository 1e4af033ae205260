// Counter-based random numbers: Philox 4x32 with 10 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1,
// 2, 3"). A draw depends only on its key and counter, never on what was drawn before, so every split of a model, and
// every order of events, sees the same numbers.
#pragma once

#include <array>
#include <cstdint>

namespace rehearse {

class Philox {
 public:
  // `key` separates uses (seed mixed with a purpose), `counter` names the draw.
  static constexpr std::array<std::uint32_t, 4> draw(std::uint64_t key, std::uint64_t counter_low,
                                                     std::uint64_t counter_high = 0) {
    std::array<std::uint32_t, 4> c = {
        static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
        static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0], p1 = std::uint64_t{0xCD9E8D57} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return c;
  }
  // Uniform in [0, 1) with 24 bits, from one word of a draw.
  static constexpr float uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
};

// A key from parts, mixed so that neighbouring parts give unrelated keys (splitmix64's finaliser, Steele et al. 2014).
constexpr std::uint64_t mix_key(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9E3779B97F4A7C15 * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace rehearse
