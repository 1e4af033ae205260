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

// Scaled so that the largest becomes `most`, rounded and scaled back; in fp32, as scales are kept.
template <typename Real>
std::vector<Real> to_8_bits(std::vector<Real> x, int mantissa, int least, double most, double off) {
  float largest = 0;
  for (const Real v : x) largest = std::max(largest, std::abs(static_cast<float>(v)));
  if (largest == 0) return x;
  const float scale = static_cast<float>(most) / largest * static_cast<float>(off), inverse = 1 / scale;
  for (Real& v : x) v = to_multiple(static_cast<float>(v) * scale, mantissa, least, static_cast<float>(most)) * inverse;
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
auto PlainGpt<Real>::operand(const Linear& linear, const Values& x) const -> Values {
  return linear.eight_bits ? to_8_bits(kept(x), 3, -9, 448, shape_.scaled) : kept(x);
}

template <typename Real>
auto PlainGpt<Real>::weight_operand(const Linear& linear) const -> Values {
  return operand(linear, value(linear.weight));
}

template <typename Real>
auto PlainGpt<Real>::gradient_operand(const Linear& linear, const Values& dy) const -> Values {
  if (!linear.eight_bits) return kept(dy);
  return to_8_bits(kept(dy), shape_.gradient_mantissa, shape_.gradient_least, shape_.gradient_most, shape_.scaled);
}

#define REHEARSE_INSTANTIATE(Real)                                                   \
  template auto PlainGpt<Real>::kept(Values) const->Values;                          \
  template auto PlainGpt<Real>::operand(const Linear&, const Values&) const->Values; \
  template auto PlainGpt<Real>::weight_operand(const Linear&) const->Values;         \
  template auto PlainGpt<Real>::gradient_operand(const Linear&, const Values&) const->Values;
REHEARSE_INSTANTIATE(float)
REHEARSE_INSTANTIATE(double)
#undef REHEARSE_INSTANTIATE

}  // namespace rehearse::numerics
