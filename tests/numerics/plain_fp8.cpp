// Rounding of the plain GPT: to 8 bits where products read, to bf16 between. A number of p bits of mantissa is a
// multiple of two to its exponent less p, or of the smallest subnormal, whichever is larger; halves go to the even
// multiple; nothing is larger than the largest.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/numerics/plain_gpt.h"

namespace rehearse::numerics {
namespace {

template <typename Real>
Real to_multiple(Real x, int mantissa, int least, Real most) {
  if (x == 0) return x;
  const int last = std::max(std::ilogb(x) - mantissa, least);
  return std::clamp(std::ldexp(std::nearbyint(std::ldexp(x, -last)), last), -most, most);
}

// Scaled so that the largest becomes `most`, rounded and scaled back; in fp32, as scales are kept. group(i): of which
// elements with a scale in common, of `groups`, element i is.
template <typename Real, typename Group>
std::vector<Real> to_8_bits(std::vector<Real> x, int mantissa, int least, double most, double off, std::size_t groups,
                            bool power_of_two, const Group& group) {
  std::vector<float> largest(groups, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i)
    largest[group(i)] = std::max(largest[group(i)], std::abs(static_cast<float>(x[i])));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (largest[group(i)] == 0) continue;
    float scale = static_cast<float>(most) / largest[group(i)];
    if (power_of_two) scale = std::exp2(std::floor(std::log2(scale)));
    scale *= static_cast<float>(off);
    x[i] = to_multiple(static_cast<float>(x[i]) * scale, mantissa, least, static_cast<float>(most)) * (1 / scale);
  }
  return x;
}

}  // namespace

template <typename Real>
auto PlainGpt<Real>::kept(Values x) const -> Values {
  if (shape_.eight_bits)
    for (Real& v : x) v = to_multiple(v, 7, -133, std::numeric_limits<Real>::max());
  return x;
}

template <typename Real>
auto PlainGpt<Real>::rounded(const Values& x, std::int64_t width, Sums sums, int mantissa, int least, double most) const
    -> Values {
  const auto w = static_cast<std::size_t>(width);
  const bool rows = shape_.row_scales && sums == Sums::along_rows, columns = shape_.row_scales && !rows;
  return to_8_bits(kept(x), mantissa, least, most, shape_.scaled,
                   rows      ? x.size() / w
                   : columns ? w
                             : 1,
                   shape_.row_scales, [=](std::size_t i) { return rows      ? i / w
                                                                  : columns ? i % w
                                                                            : 0; });
}

template <typename Real>
auto PlainGpt<Real>::operand(const Linear& linear, const Values& x, Sums sums) const -> Values {
  return linear.eight_bits ? rounded(x, linear.in, sums, 3, -9, 448) : kept(x);
}

template <typename Real>
auto PlainGpt<Real>::weight_operand(const Linear& linear, Sums sums) const -> Values {
  return operand(linear, value(linear.weight), sums);
}

template <typename Real>
auto PlainGpt<Real>::gradient_operand(const Linear& linear, const Values& dy, Sums sums) const -> Values {
  if (!linear.eight_bits) return kept(dy);
  return rounded(dy, linear.out, sums, shape_.gradient_mantissa, shape_.gradient_least, shape_.gradient_most);
}

#define REHEARSE_INSTANTIATE(Real)                                                                          \
  template auto PlainGpt<Real>::kept(Values) const->Values;                                                 \
  template auto PlainGpt<Real>::rounded(const Values&, std::int64_t, Sums, int, int, double) const->Values; \
  template auto PlainGpt<Real>::operand(const Linear&, const Values&, Sums) const->Values;                  \
  template auto PlainGpt<Real>::weight_operand(const Linear&, Sums) const->Values;                          \
  template auto PlainGpt<Real>::gradient_operand(const Linear&, const Values&, Sums) const->Values;
REHEARSE_INSTANTIATE(float)
REHEARSE_INSTANTIATE(double)
#undef REHEARSE_INSTANTIATE

}  // namespace rehearse::numerics
