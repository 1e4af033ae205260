// How a rank's gradients of a bucket lie on the wire where plan.gradient_compression makes them smaller: which of them
// are sent, in how many bits each, with which scales. Bytes, in this order:
//
//   codes    of the values sent, `bits` each, the first one of a byte in its lowest bits; 32: the values, fp32. Filled
//            up to a multiple of 4 bytes
//   scales   of each chunk of `chunk` values, fp32: the scale and the zero point (what code 0 stands for); of 1 bit the
//            scale alone
//   places   of the values among the gradients, i32, in ascending order; only where the largest are sent (those drawn
//            at random are the same on every rank, which draws them itself)
//
// 8, 4 and 2 bits: zero point = the chunk's least value, scale = (greatest - least) / (2^bits - 1), value = zero point
// + code * scale. 1 bit: the sign times the mean of the absolute values (Seide et al. 2014, "1-bit stochastic gradient
// descent", with one mean; Bernstein et al. 2018, arXiv 1802.04434, with the scale of Karimireddy et al. 2019, arXiv
// 1901.09847).
#pragma once

#include <cstdint>

namespace rehearse {

struct GradientCode {
  enum class Sent : unsigned char { all, largest, random };
  Sent sent = Sent::all;
  int bits = 32;            // 32, 8, 4, 2 or 1
  bool stochastic = false;  // codes are rounded up with the probability that makes their mean right (8, 4, 2 bits)
  bool unbiased = false;    // of `random`: values times elements / kept, whose mean is right
  std::int64_t elements = 0;
  std::int64_t kept = 0;   // values sent; `all`: elements
  std::int64_t chunk = 0;  // a multiple of 8, so that a chunk's codes begin with a byte

  bool quantised() const { return bits < 32; }
  std::int64_t chunks() const { return quantised() ? (kept + chunk - 1) / chunk : 0; }
  std::int64_t code_bytes() const { return (kept * bits + 31) / 32 * 4; }
  std::int64_t scales() const { return chunks() * (bits == 1 ? 1 : 2); }
  std::int64_t places() const { return sent == Sent::largest ? kept : 0; }
  std::int64_t bytes() const { return code_bytes() + 4 * (scales() + places()); }
  // Sums of what ranks send are what each would send of the sum: fp32 values in the same places.
  bool adds_up() const { return !quantised() && sent == Sent::random; }
  friend bool operator==(const GradientCode&, const GradientCode&) = default;
};

// What is drawn at random depends on these alone: places on all but the member, rounding on all.
struct GradientDraw {
  std::uint64_t seed = 0, site = 0;  // site: the bucket
  std::uint64_t member = 0;          // of the ranks that reduce the bucket
  std::uint64_t step = 0;
  friend bool operator==(const GradientDraw&, const GradientDraw&) = default;
};

}  // namespace rehearse
