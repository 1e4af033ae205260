// How much shared memory the tiles of a head_dim take. See flash.h.
#include <algorithm>

#include "kernels/cuda/flash_backward.h"
#include "kernels/cuda/flash_forward.h"

namespace rehearse::kernels::cuda {

std::size_t flash_shared_bytes(int head_dim, bool backward) {
  std::size_t bytes = 0;
  flash_by_width(head_dim, [&]<int D>() {
    bytes = backward ? std::max(KeyTiles<D>::kSharedBytes, QueryTiles<D>::kSharedBytes)
                     : std::max(ForwardTiles<D, false>::kSharedBytes, ForwardTiles<D, true>::kSharedBytes);
  });
  return bytes;
}

}  // namespace rehearse::kernels::cuda
