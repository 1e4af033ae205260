// The forward kernels for bf16: one file a type, so that they compile beside each other.
#include "kernels/cuda/flash_forward.h"

namespace rehearse::kernels::cuda {

template void flash_forward_tiles<__nv_bfloat16>(const FlashCall&, const FlashTensors&, cudaStream_t);

}  // namespace rehearse::kernels::cuda
