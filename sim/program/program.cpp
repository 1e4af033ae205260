// Sizes of buffers: the product of their shape. A view has its own shape, so its own size, inside its base.
#include "sim/program/program.h"

#include <functional>
#include <numeric>

namespace rehearse::program {

std::int64_t Buffer::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace rehearse::program
