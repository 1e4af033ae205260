// Activations of one element, for kernels that fuse them.
#pragma once

#include "kernels/cuda/launch.h"

namespace rehearse::kernels::cuda {

// gelu(x) = x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel 2016, eq.
// 2). The sigmoid form keeps full relative precision where tanh is near -1.
inline constexpr float kTwoRootTwoOverPi = 1.5957691216057308F, kGeluCubic = 0.044715F;

// Far below zero exp(-x) is infinite, and __fdividef by infinity zero, as it should be.
__device__ inline float sigmoid(float x) {
  return __fdividef(1.0F, 1.0F + __expf(-x));
}
__device__ inline float gelu(float x) {
  return x * sigmoid(kTwoRootTwoOverPi * (x + kGeluCubic * x * x * x));
}
__device__ inline float gelu_slope(float x) {
  const float s = sigmoid(kTwoRootTwoOverPi * (x + kGeluCubic * x * x * x));
  return s + x * s * (1.0F - s) * kTwoRootTwoOverPi * (1.0F + 3.0F * kGeluCubic * x * x);
}

}  // namespace rehearse::kernels::cuda
