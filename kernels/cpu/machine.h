// Which instruction sets the kernels were compiled for, and which of them a machine lacks.
#pragma once

#include <string>

namespace rehearse::kernels::cpu {

// Bits of kCompiledFor.
enum Feature : unsigned {
  kAvx2 = 1,
  kFma = 2,
  kBmi = 4,
  kBmi2 = 8,
  kAvx512F = 16,
  kAvx512Bw = 32,
  kAvx512Dq = 64,
  kAvx512Vl = 128,
  kAvx512Cd = 256,
  kAvx512Vbmi = 512,
};

// A constant and no function: whoever asks need not run code that was compiled for them.
extern const unsigned kCompiledFor;

unsigned features_here();
// "AVX2 and FMA": of `required`, those that are not among `here`; empty if none.
std::string missing_features(unsigned required, unsigned here);

}  // namespace rehearse::kernels::cpu
