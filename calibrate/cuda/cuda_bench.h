// A Bench (calibrate/gpu/bench.h) on a real GPU: kernels through the same kernels::Device that `execute` uses, timed as
// CUDA graphs with events, on random normal numbers in sets of operands that are rotated over more than four times the
// L2 cache. Changes no clock, power limit or mode. Where the program is built without CUDA, there is none to be made.
#pragma once

#include <memory>

#include "calibrate/gpu/bench.h"

namespace rehearse::kernels::cuda {
struct BlasApi;
}

namespace rehearse::calibrate::gpu {

// `device` is one of kernels::cuda::device_count(). `blas`: cuBLASLt's functions, which outlive it; null: this
// machine's library. `measure_products`: products go by the fastest of its algorithms instead of its first choice, as
// `execute --products measured` performs them. Throws DeviceError.
std::unique_ptr<Bench> make_cuda_bench(int device, const kernels::cuda::BlasApi* blas = nullptr,
                                       bool measure_products = false);

}  // namespace rehearse::calibrate::gpu
