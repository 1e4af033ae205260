// The arithmetic of Adafactor (sim/program/optimizer_ops.h) that the kernels of whole tensors and of parts share.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/device.h"

namespace rehearse::kernels::cpu {

inline constexpr double kLeastSquare = 1e-30, kClipThreshold = 1.0, kDecayPower = -0.8;
inline constexpr std::int64_t kRowGrain = 8, kColumnGrain = 64, kElementGrain = 4096;

inline double square_of(float gradient, float scale) {
  const double g = gradient * scale;
  return g * g + kLeastSquare;
}

inline double decay_in(const StepValues& step) {
  return 1 - std::pow(static_cast<double>(step.step + 1), kDecayPower);
}

// Keeps `decay` of the mean and adds the rest of `now`.
inline void follow(float& mean, double decay, double now) {
  mean = static_cast<float>(decay * static_cast<double>(mean) + (1 - decay) * now);
}

}  // namespace rehearse::kernels::cpu
