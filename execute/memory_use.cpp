// See memory_use.h.
#include "execute/memory_use.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "sim/base/check.h"

namespace rehearse::execute {

std::int64_t resident_bytes(const std::byte* begin, std::int64_t bytes) {
  if (bytes == 0) return 0;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<std::uintptr_t>(begin), to = from + static_cast<std::uintptr_t>(bytes);
  const std::uintptr_t first = from / page * page;
  std::vector<unsigned char> pages((to - first + page - 1) / page);
  auto* const start = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr): rounded to a page
  REHEARSE_CHECK(mincore(start, to - first, pages.data()) == 0, "mincore: {}", std::strerror(errno));
  std::int64_t resident = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if ((pages[i] & 1) == 0) continue;
    const std::uintptr_t at = first + i * page;
    resident += static_cast<std::int64_t>(std::min(at + page, to) - std::max(at, from));
  }
  return resident;
}

}  // namespace rehearse::execute
