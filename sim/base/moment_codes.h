// Moments of an optimizer in 8 bits: dynamic tree quantization in blocks (Dettmers et al. 2021, arXiv 2110.02861,
// sections 1.3 and 2.1) as bitsandbytes has it (functional.py, create_dynamic_map; optim/optimizer.py, blocksize=256;
// the paper's blocks have 2,048). An element is the value of its code times the largest absolute value of its block.
//
// Codes are in ascending order of their values, which lie in decades, from 10^-7 to 1: each has twice as many values as
// the one below it, evenly spaced. With n = 2^e values of the decade that ends at 10^d, the j-th is
// 10^d (0.1 + 0.9 (j + 1/2) / n). Signed: code 127 is 0, codes 128 ... 254 have e = d + 6 = 0 ... 6, codes 126 ... 0
// the same values negated, code 255 is 1. Unsigned: code 0 is 0, codes 1 ... 254 have e = d + 7 = 1 ... 7, code 255
// is 1.
#pragma once

#include <array>
#include <cstdint>

namespace rehearse {

inline constexpr std::int64_t kMomentBlock = 256;  // elements that share a largest absolute value
// Tensors of fewer elements keep fp32 moments (bitsandbytes optim/optimizer.py, min_8bit_size).
inline constexpr std::int64_t kLeast8BitMoments = 4096;

struct MomentCodes {
  std::array<float, 256> values{};
  // Half way between a code's value and the next one's; what lies on it takes the lower code.
  std::array<float, 255> middles{};
};
// Of averages of gradients, and of averages of squares. Made at the first call; any thread may call.
const MomentCodes& signed_moment_codes();
const MomentCodes& unsigned_moment_codes();

// x[count] as codes, and the block's largest absolute value; count is at most kMomentBlock. Each is the nearest code to
// x / largest, but what is below 0 does not become 0: it takes the code below. A block of zeros has 0 as its largest.
// A block in which something is not a number has that as its largest, so that all of it is none.
void encode_moments(bool is_signed, const float* x, std::int64_t count, std::uint8_t* codes, float& largest);
void decode_moments(bool is_signed, const std::uint8_t* codes, float largest, std::int64_t count, float* x);

}  // namespace rehearse
