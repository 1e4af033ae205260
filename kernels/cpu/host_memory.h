// Memory for a CPU device's tensors, in huge pages where the system gives them (transparent huge pages on madvise):
// with 4 KiB pages the memory-bound kernels lose up to half their bandwidth to address translation.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace rehearse::kernels::cpu {

// For std::vector and the like. Memory is not initialised. Only whole huge pages of a block are asked for as such, so
// that a block takes no more memory than its size in small pages, once it is written. Small blocks begin at multiples
// of 256.
template <class T>
struct HostAllocator {
  using value_type = T;

  HostAllocator() = default;
  template <class U>
  explicit HostAllocator(const HostAllocator<U>&) {}

  T* allocate(std::size_t n) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20, kAligned = 256;
    const std::size_t wanted = n * sizeof(T), unit = wanted >= kHugePage ? kHugePage : kAligned;
    const std::size_t bytes = (wanted + unit - 1) / unit * unit;
    void* memory = std::aligned_alloc(unit, bytes);
    if (!memory && bytes > 0) throw std::bad_alloc();
    if (unit == kHugePage) madvise(memory, wanted / unit * unit, MADV_HUGEPAGE);  // a hint: refusal costs only speed
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const HostAllocator&) const { return true; }
};

template <class T>
using HostVector = std::vector<T, HostAllocator<T>>;

}  // namespace rehearse::kernels::cpu
