// The backward kernels for f16: one file a type, so that they compile beside each other.
#include "kernels/cuda/flash_backward.h"

namespace rehearse::kernels::cuda {

template void flash_backward_tiles<__half>(const FlashCall&, const FlashTensors&, cudaStream_t);

}  // namespace rehearse::kernels::cuda
