// What a direct kernel of a grouped convolution takes, on ordinary cores.
#pragma once

#include <algorithm>

#include "sim/cost/range.h"
#include "sim/program/work.h"

namespace rehearse::cost {

// Grouped convolutions without tensor cores: of the ordinary cores' fp32 peak, what cuDNN's direct kernels
// (conv2d_grouped_direct_kernel, dgrad2d_, wgrad2d_) reach, whatever the operands' type. The four sizes of ResNeXt-50's
// groups, 4 to 32 maps, took 0.08, 0.19, 0.28 and 0.25 of a GTX 1080's 8.9 TFLOP/s in TensorRT, in 8 bits
// (apache/tvm#2075); groups of 64 with a stride 0.016 forward and 0.008 for weights, in fp16, which was called a defect
// (pytorch/pytorch#34977). A judgement, as is the range of what either way of multiplying is taken to take.
inline constexpr double kDirectShare = 0.2;
inline constexpr Range kGroupedConvolution = {1, 0.4, 2.5};

// Without its launch. `peak`: of the ordinary cores in fp32, FLOP/s; `bandwidth` in bytes/s.
inline double direct_seconds(const program::Work& work, double peak, double bandwidth) {
  return std::max(work.flops / (kDirectShare * peak),
                  static_cast<double>(work.bytes_read + work.bytes_written) / bandwidth);
}

}  // namespace rehearse::cost
