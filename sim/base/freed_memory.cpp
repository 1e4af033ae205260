// See freed_memory.h.
#include "sim/base/freed_memory.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace rehearse {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestKept = 32 << 20, kMostKept = 256 << 20;  // bytes: the former is the most that glibc takes
  mallopt(M_MMAP_THRESHOLD, kLargestKept);
  mallopt(M_TRIM_THRESHOLD, kMostKept);
#endif
}

}  // namespace rehearse
