// cuBLASLt for a machine without a GPU: the functions of kernels/cuda/blas_api.h, which do a product in plain loops
// from nothing but the descriptors and pointers they are given, column-major, as the library's documentation says. So a
// wrong leading dimension, transpose, stride, epilogue or beta gives a wrong result. What the real library refuses is
// refused.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/blas_api.h"

namespace emulator {

// What was asked for since the last reset; objects that live are counted always.
struct BlasLog {
  int live_objects = 0, heuristics = 0, products = 0;
  std::uint32_t reduction_mask = 0, alignment_a = 0, alignment_b = 0, alignment_c = 0, alignment_d = 0;
  std::uint64_t workspace = 0;
  bool no_epilogues = false;              // of GELU and of bias gradients: as a library that has none
  int first_sleeps_ms = 0;                // so much longer the first proposed algorithm takes
  std::vector<std::uint32_t> epilogues;   // of each product
  std::vector<std::uint64_t> algorithms;  // the number each product was done by: 0 is the first proposed
};
BlasLog& blas_log();

const rehearse::kernels::cuda::BlasApi& blas_api();

}  // namespace emulator
