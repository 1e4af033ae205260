// What is taken of a Mamba-2 mixer's scan, of which nothing was measured.
#pragma once

#include "sim/cost/range.h"

namespace rehearse::cost {

// Products of a Mamba-2 mixer's scan, Triton kernels of small tiles with exponentials between them
// (sim/base/state_space.h): the share of the peak that they reach where traffic does not bound them, and how long a
// kernel may take against what follows. No measurement is at hand but that these kernels are mostly bound by bandwidth
// and latency (PyTorch's blog, "Accelerating Mamba2 with Kernel Fusion", 2026). Judgements.
inline constexpr double kScanShare = 0.3;
inline constexpr Range kScanRange = {1, 0.6, 2.5};

}  // namespace rehearse::cost
