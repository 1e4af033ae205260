// What a normalisation's forward pass keeps of a row: layer (mean, 1 / deviation), rms (1 / root mean square).
#pragma once

#include "kernels/cuda/launch.h"

namespace rehearse::kernels::cuda {

struct RowStats {
  float mean, inverse;
};
__device__ inline RowStats read_stats(bool rms, const float* stats, std::int64_t row) {
  if (rms) return {0, stats[row]};
  const float2 both = *reinterpret_cast<const float2*>(stats + 2 * row);
  return {both.x, both.y};
}

}  // namespace rehearse::kernels::cuda
