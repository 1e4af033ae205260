// The tables of 8-bit moments, and a search in them: the upper bits of a magnitude say at which code to begin.
#include "sim/base/moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace rehearse {
namespace {

constexpr int kZeroOfSigned = 127;

// The m-th value of a map whose first decade, that of m = 1, ends at 10^lowest; m from 1.
float value_in_decades(unsigned m, int lowest) {
  const int e = std::bit_width(m) - 1;
  const double n = 1U << static_cast<unsigned>(e);
  return static_cast<float>(std::pow(10.0, lowest + e) * (0.1 + 0.9 * (m - n + 0.5) / n));
}

MomentCodes made(bool is_signed) {
  MomentCodes c;
  for (unsigned k = 1; k < 255; ++k) {
    if (!is_signed) {
      c.values[k] = value_in_decades(k + 1, -7);
    } else if (k <= kZeroOfSigned) {
      const float value = value_in_decades(k, -6);
      c.values[kZeroOfSigned + k] = value;
      c.values[kZeroOfSigned - k] = -value;
    }
  }
  c.values[255] = 1;
  for (std::size_t k = 0; k < 255; ++k) c.middles[k] = (c.values[k] + c.values[k + 1]) * 0.5F;
  return c;
}

// Codes of magnitudes from 0 to 1. Those that share the upper 16 bits of a float begin their search at one code, which
// is at most two below theirs: values are no nearer than 0.7% of themselves, and so many bits hold steps of 0.8%.
class Search {
 public:
  explicit Search(const MomentCodes& codes, int zero) : codes_(codes) {
    int code = zero;
    for (std::uint32_t upper = 0; upper <= kOne; ++upper) {
      const auto least = std::bit_cast<float>(upper << 16U);
      while (code < 255 && least > codes.middles[static_cast<std::size_t>(code)]) ++code;
      first_.push_back(static_cast<std::uint8_t>(code));
    }
  }
  int nearest(float magnitude) const {
    const std::uint32_t upper = std::min(std::bit_cast<std::uint32_t>(magnitude) >> 16U, kOne);
    int code = first_[upper];
    while (code < 255 && magnitude > codes_.middles[static_cast<std::size_t>(code)]) ++code;
    return code;
  }

 private:
  static constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0F) >> 16U;
  const MomentCodes& codes_;
  std::vector<std::uint8_t> first_;
};

const Search& search_of(bool is_signed) {
  static const Search of_signed(signed_moment_codes(), kZeroOfSigned), of_unsigned(unsigned_moment_codes(), 0);
  return is_signed ? of_signed : of_unsigned;
}

}  // namespace

const MomentCodes& signed_moment_codes() {
  static const MomentCodes codes = made(true);
  return codes;
}
const MomentCodes& unsigned_moment_codes() {
  static const MomentCodes codes = made(false);
  return codes;
}

void encode_moments(bool is_signed, const float* x, std::int64_t count, std::uint8_t* codes, float& largest) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = most >= std::fabs(x[i]) || std::isnan(most) ? most : std::fabs(x[i]);
  largest = most;
  const Search& search = search_of(is_signed);
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = most > 0 ? x[i] / most : 0.0F;  // of no number: 0
    int code = search.nearest(std::fabs(share));
    if (is_signed && share < 0) {
      // The mirror of what a positive one takes, but on the middle between two: there the lower code is the larger one.
      const int below = 2 * kZeroOfSigned - code;
      code = code == 255 ? 0 : std::min(below, kZeroOfSigned - 1);
      const MomentCodes& all = signed_moment_codes();
      while (code > 0 && share <= all.middles[static_cast<std::size_t>(code - 1)]) --code;
    }
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

void decode_moments(bool is_signed, const std::uint8_t* codes, float largest, std::int64_t count, float* x) {
  const MomentCodes& all = is_signed ? signed_moment_codes() : unsigned_moment_codes();
  for (std::int64_t i = 0; i < count; ++i) x[i] = all.values[codes[i]] * largest;
}

}  // namespace rehearse
