// Checks every access to memory that a kernel makes. The .cu files are compiled for the emulator with
// -fsanitize=thread, which puts a call before each load and store; the calls come here instead of to that sanitizer's
// library (this file is compiled without it).
//
// For each byte of device memory and of the program's variables (where __shared__ ones are: the emulator makes them
// static) two words remember the segment (emulator.h) that last wrote and that last read it. Two accesses of different
// threads, one a write, clash unless a barrier lies between: blocks of a launch are never ordered, threads of a block
// by __syncthreads, lanes of a warp by __syncwarp too. Atomic functions do not clash with each other.
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/gpu/emulator/cuda_emulator.h"
#include "tests/gpu/emulator/emulator.h"

extern "C" {
extern char __data_start;  // NOLINT: of the linker
extern char _end;          // NOLINT
}

namespace emulator {
namespace {

constexpr std::uint32_t kAtomic = 0x80000000U;  // with a segment that wrote

struct Shadow {
  std::uint32_t wrote = 0, read = 0;
};

// One Shadow a byte of a range; pages that are never touched cost nothing.
class Shadows {
 public:
  explicit Shadows(Range range) : range_(range) {
    const auto bytes = static_cast<std::size_t>(range.end - range.begin) * sizeof(Shadow);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    shadows_ = static_cast<Shadow*>(memory);
  }
  bool holds(const void* p) const { return range_.holds(p); }
  Shadow* of(const void* p) const { return shadows_ + (static_cast<const char*>(p) - range_.begin); }

 private:
  Range range_;
  Shadow* shadows_ = nullptr;
};

struct Checks {
  Shadows device{device_range()}, statics{{&__data_start, &_end}}, dynamic{dynamic_shared_range()};
  std::vector<Segment> segments;  // of this launch
  std::uint32_t first = 1;        // number of the first of them
  std::string found;
};
Checks* checks = nullptr;
std::uint32_t running = 0;  // segment; 0: none

const Segment& segment(std::uint32_t number) {
  return checks->segments[number - checks->first];
}

bool in_order(const Segment& a, const Segment& b) {
  if (a.block != b.block) return false;
  if (a.thread == b.thread || a.block_barriers != b.block_barriers) return true;
  return a.thread / 32 == b.thread / 32 && a.warp_barriers != b.warp_barriers;
}

std::string address(const void* p) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%p", p);
  return text.data();
}

void clash(const void* p, const char* kind, const char* before, std::uint32_t number) {
  const Segment& other = segment(number);
  report("a race at " + address(p) + " in " + (checks->device.holds(p) ? "device" : "shared") + " memory: " + kind +
         " after thread " + std::to_string(other.thread) + " of block " + std::to_string(other.block) + " " + before +
         ", with no barrier between");
}

enum class Access : unsigned char { read, write, atomic };

void check_range(const Shadows& shadows, const void* p, std::size_t bytes, Access access, bool shared) {
  Shadow* s = shadows.of(p);
  const Segment& now = segment(running);
  for (std::size_t i = 0; i < bytes; ++i, ++s) {
    const std::uint32_t writer = s->wrote & ~kAtomic;
    const bool written = writer >= checks->first, by_atomic = (s->wrote & kAtomic) != 0;
    if (access == Access::read) {
      if (shared && (!written || segment(writer).block != now.block)) {
        report("shared memory at " + address(p) + " is read, which this block has not written");
        return;
      }
      if (written && !in_order(segment(writer), now)) return clash(p, "it is read", "wrote it", writer);
      s->read = running;
      continue;
    }
    const bool both_atomic = access == Access::atomic && by_atomic;
    const bool other_block_shared = shared && written && segment(writer).block != now.block;  // the last block's
    if (written && !both_atomic && !other_block_shared && !in_order(segment(writer), now))
      return clash(p, "it is written", "wrote it", writer);
    if (s->read >= checks->first && !(shared && segment(s->read).block != now.block) &&
        !in_order(segment(s->read), now))
      return clash(p, "it is written", "read it", s->read);
    s->wrote = running | (access == Access::atomic ? kAtomic : 0U);
  }
}

void check(const void* p, std::size_t bytes, Access access) {
  if (checks == nullptr) return;
  if (running == 0) {
    if (checks->device.holds(p)) throw std::runtime_error("the host touches device memory at " + address(p));
    return;
  }
  if (checks->device.holds(p)) {
    if (!allocated(p, bytes)) {
      report("an access of " + std::to_string(bytes) + " bytes at " + address(p) + " outside any allocation");
      abandon();
    }
    const bool power = bytes > 0 && (bytes & (bytes - 1)) == 0;
    if (power && reinterpret_cast<std::uintptr_t>(p) % (bytes > 16 ? 16 : bytes) != 0) {
      report("a misaligned access of " + std::to_string(bytes) + " bytes at " + address(p));
      abandon();
    }
    check_range(checks->device, p, bytes, access, false);
  } else if (checks->dynamic.holds(p)) {
    check_range(checks->dynamic, p, bytes, access, true);
  } else if (checks->statics.holds(p)) {
    const auto* begin = reinterpret_cast<const char*>(&place);
    if (p >= static_cast<const void*>(begin) && p < static_cast<const void*>(begin + sizeof place)) return;
    check_range(checks->statics, p, bytes, access, true);
  }
}

}  // namespace

std::uint32_t new_segment(const Segment& s) {
  checks->segments.push_back(s);
  return checks->first + static_cast<std::uint32_t>(checks->segments.size()) - 1;
}

void set_segment(std::uint32_t number) {
  running = number;
}

void begin_checks() {
  if (checks == nullptr) checks = new Checks;  // NOLINT: lives as long as the program
  checks->first += static_cast<std::uint32_t>(checks->segments.size());
  checks->segments.clear();
  checks->found.clear();
}

std::string end_checks() {
  running = 0;
  return checks->found;
}

void report(const std::string& finding) {
  if (checks->found.empty()) checks->found = running == 0 ? finding : finding + " (" + where() + ")";
}

void check_atomic(const void* p, std::size_t bytes) {
  check(p, bytes, Access::atomic);
}

}  // namespace emulator

// What -fsanitize=thread calls.
// NOLINTBEGIN
#define REHEARSE_HOOKS(bytes)                           \
  void __tsan_read##bytes(void* p) {                    \
    emulator::check(p, bytes, emulator::Access::read);  \
  }                                                     \
  void __tsan_write##bytes(void* p) {                   \
    emulator::check(p, bytes, emulator::Access::write); \
  }                                                     \
  void __tsan_unaligned_read##bytes(void* p) {          \
    emulator::check(p, bytes, emulator::Access::read);  \
  }                                                     \
  void __tsan_unaligned_write##bytes(void* p) {         \
    emulator::check(p, bytes, emulator::Access::write); \
  }
extern "C" {
REHEARSE_HOOKS(1)
REHEARSE_HOOKS(2)
REHEARSE_HOOKS(4)
REHEARSE_HOOKS(8)
REHEARSE_HOOKS(16)
void __tsan_read_range(void* p, std::size_t bytes) {
  emulator::check(p, bytes, emulator::Access::read);
}
void __tsan_write_range(void* p, std::size_t bytes) {
  emulator::check(p, bytes, emulator::Access::write);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_atomic_thread_fence(int) {}
#define REHEARSE_ATOMICS(bits, type)                                                                       \
  type __tsan_atomic##bits##_load(const volatile type* p, int) {                                           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                           \
  }                                                                                                        \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int) {                                        \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                              \
  }                                                                                                        \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {                                     \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                        \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) {                                    \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                        \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) {                                    \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                        \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* expected, type v, int, int) { \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }
REHEARSE_ATOMICS(8, std::uint8_t)
REHEARSE_ATOMICS(16, std::uint16_t)
REHEARSE_ATOMICS(32, std::uint32_t)
REHEARSE_ATOMICS(64, std::uint64_t)
}
// NOLINTEND
