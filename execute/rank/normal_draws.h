// Normal random numbers by Box-Muller, many at a time, each the float that the C library's log and cos give:
//   normal_value(w0, w1, scale) = float(scale * sqrt(-2 ln u) cos(2 pi v)), u = (w0 + 1) / 2^32, v = w1 / 2^32.
// normal_values computes them with polynomials that a compiler vectorises, in double precision, and knows how far such
// a number may be from that of the C library; where that could make another float (about one in a million), it asks the
// C library after all (Ziv 1991, "Fast evaluation of elementary mathematical functions with correctly rounded last
// bit").
#pragma once

#include <cstdint>

namespace rehearse::execute {

float normal_value(std::uint32_t w0, std::uint32_t w1, double scale);

// out[i] = normal_value(words 0 and 1 of Philox::draw(key, first + i), scale) for i in [0, count).
void normal_values(std::uint64_t key, std::uint64_t first, std::int64_t count, double scale, float* out);

}  // namespace rehearse::execute
