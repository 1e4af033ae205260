// What the emulated runtime functions (runtime.cpp) need of the rest.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace emulator {

void* allocate(std::size_t bytes);  // null: no room
bool release(void* p);              // false: not an allocation
std::size_t allocated_bytes();
std::size_t device_bytes();
// Runs a grid now (block.cpp).
void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& thread);

}  // namespace emulator
