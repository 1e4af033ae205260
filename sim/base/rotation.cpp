// See rotation.h.
#include "sim/base/rotation.h"

#include <algorithm>
#include <cmath>

namespace rehearse {
namespace {

constexpr double kTurn = 2 * 3.14159265358979323846;
constexpr double kYarnFast = 32, kYarnSlow = 1;  // turns

// The pair, not whole, that turns so many times in the trained positions.
double pair_of_turns(const Rotation& r, double turns, std::int64_t columns) {
  return static_cast<double>(columns) * std::log(static_cast<double>(r.trained) / (turns * kTurn)) /
         (2 * std::log(r.base));
}

// How much of a pair's frequency stays, the rest being divided by the factor.
double stays(const Rotation& r, double frequency, std::int64_t pair, std::int64_t columns) {
  if (r.scaling == RotationScaling::linear) return 0;
  if (r.scaling == RotationScaling::llama3) {
    const double turns = static_cast<double>(r.trained) * frequency / kTurn;
    return std::clamp((turns - r.low) / (r.high - r.low), 0.0, 1.0);
  }
  const double first = std::max(0.0, std::floor(pair_of_turns(r, kYarnFast, columns)));
  double last = std::min(static_cast<double>(columns - 1), std::ceil(pair_of_turns(r, kYarnSlow, columns)));
  if (last == first) last += 0.001;
  return 1 - std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
}

}  // namespace

double Rotation::frequency(std::int64_t pair, std::int64_t columns) const {
  const double own = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(columns));
  if (scaling == RotationScaling::none) return own;
  const double part = stays(*this, own, pair, columns);
  return own * (part + (1 - part) / factor);
}

double Rotation::magnitude() const {
  return scaling == RotationScaling::yarn && factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

}  // namespace rehearse
