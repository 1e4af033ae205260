// cuDNN for a machine without a GPU: the functions of kernels/cuda/sdpa_graph.h, which do what a graph of descriptors
// says, operation by operation, in plain loops over the strides it is given. So a wrong stride, operand, order or
// scalar gives a wrong result. Which graphs the real library has engines for it does not know.
#pragma once

#include "kernels/cuda/sdpa_graph.h"

namespace emulator {

struct SdpaLog {
  int live_objects = 0, executed = 0;
  bool no_plan = false;  // as a library that has no engine for attention
  float wrong_by = 0;    // added to what products write: as a library whose numbers are not ours
};
SdpaLog& sdpa_log();

const rehearse::kernels::cuda::SdpaApi& sdpa_api();

}  // namespace emulator
