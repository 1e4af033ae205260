// The emulated device's memory: one reserved range, of which allocations are cut with room between them, so that an
// access past an end meets nobody else's. New memory is filled with ones: not a number in every type.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tests/gpu/emulator/emulator.h"
#include "tests/gpu/emulator/runtime.h"

namespace emulator {
namespace {

constexpr std::size_t kDeviceBytes = std::size_t{2} << 30, kRoom = 512, kAligned = 256;

struct Memory {
  char* begin = nullptr;
  std::map<std::size_t, std::size_t> allocations;  // offset to bytes
  std::mutex mutex;

  Memory() {
    void* memory =
        mmap(nullptr, kDeviceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    begin = static_cast<char*>(memory);
  }
};
Memory& memory() {
  static Memory m;
  return m;
}

}  // namespace

Range device_range() {
  Memory& m = memory();
  return {m.begin, m.begin + kDeviceBytes};
}

bool allocated(const void* p, std::size_t bytes) {
  Memory& m = memory();
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(p) - m.begin);
  auto it = m.allocations.upper_bound(offset);
  if (it == m.allocations.begin()) return false;
  --it;
  return offset + bytes <= it->first + it->second;
}

void* allocate(std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  std::size_t offset = kRoom;
  for (const auto& [begin, size] : m.allocations) {
    if (offset + bytes + kRoom <= begin) break;
    offset = (begin + size + kRoom + kAligned - 1) / kAligned * kAligned;
  }
  if (offset + bytes + kRoom > kDeviceBytes) return nullptr;
  m.allocations[offset] = bytes;
  std::memset(m.begin + offset, 0xFF, bytes);
  return m.begin + offset;
}

bool release(void* p) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto it = m.allocations.find(static_cast<std::size_t>(static_cast<char*>(p) - m.begin));
  if (it == m.allocations.end()) return false;
  // Pages go back, so that what a test allocated and freed does not add up.
  constexpr std::size_t kPage = 4096;
  const std::size_t first = (it->first + kPage - 1) / kPage * kPage, last = (it->first + it->second) / kPage * kPage;
  if (first < last) (void)madvise(m.begin + first, last - first, MADV_DONTNEED);
  m.allocations.erase(it);
  return true;
}

std::size_t allocated_bytes() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  std::size_t total = 0;
  for (const auto& [begin, size] : m.allocations) total += size;
  return total;
}

std::size_t device_bytes() {
  return kDeviceBytes;
}

}  // namespace emulator
