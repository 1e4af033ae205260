// Kernels that are wrong in ways the emulator must see, each with its right twin.
#pragma once

#include "kernels/cuda/runtime.h"

namespace rehearse::kernels::cuda::broken {

void reverse_block(bool barrier, int* data, const Stream& stream);       // 64 numbers, through shared memory
void neighbours_of_warp(bool barrier, int* data, const Stream& stream);  // lane i takes lane i + 1's, through memory
void branch_barrier(bool whole_block, const Stream& stream);
void warp_sum_of(unsigned mask, int* sum, const Stream& stream);      // of the lanes 0 .. 15, mask as given
void write_from_blocks(int stride, int* data, const Stream& stream);  // block b writes data[b * stride]
void count_in_shared(bool clear, int* data, const Stream& stream);    // by atomicAdd
void read_past(int* data, int place, const Stream& stream);           // data[0] = data[place]
void read_wide(const int* data, int* out, const Stream& stream);      // 16 bytes at once
void votes(int* out, const Stream& stream);
void dynamic_shared(std::size_t bytes, int* out, const Stream& stream);  // writes its last int

}  // namespace rehearse::kernels::cuda::broken
