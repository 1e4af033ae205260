// The instruction sets of REHEARSE_ARCH, as the compiler tells them; compiled with the kernels' options. Those that
// every processor with AVX2 or AVX-512 has beside it (LZCNT, MOVBE, F16C) are left out.
#include "kernels/cpu/machine.h"

namespace rehearse::kernels::cpu {

const unsigned kCompiledFor = 0
#ifdef __AVX2__
                              | kAvx2
#endif
#ifdef __FMA__
                              | kFma
#endif
#ifdef __BMI__
                              | kBmi
#endif
#ifdef __BMI2__
                              | kBmi2
#endif
#ifdef __AVX512F__
                              | kAvx512F
#endif
#ifdef __AVX512BW__
                              | kAvx512Bw
#endif
#ifdef __AVX512DQ__
                              | kAvx512Dq
#endif
#ifdef __AVX512VL__
                              | kAvx512Vl
#endif
#ifdef __AVX512CD__
                              | kAvx512Cd
#endif
#ifdef __AVX512VBMI__
                              | kAvx512Vbmi
#endif
    ;

}  // namespace rehearse::kernels::cpu
