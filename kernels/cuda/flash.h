// Flash attention on the GPU: the parameters of its kernels, and which there are. Tiles with an online softmax (Dao et
// al. 2022, arXiv 2205.14135; Dao 2023, arXiv 2307.08691). For 16-bit elements on the matrix units (flash_forward.h,
// flash_backward.h), for everything else by plain multiply-adds in fp32 (flash_plain.cu). Backward in two passes, one
// that owns keys and one that owns queries, so that no sum is made by atomics: 7 matrix products where 5 would do.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"

namespace rehearse::kernels::cuda {

void check_dropout(const DropoutSite& site);  // a failed check for a site that is not one

// A dropout site as kernels take it; step is null if nothing is dropped.
struct Dropping {
  std::uint32_t threshold = 0;  // kept: number >= threshold
  float kept_scale = 1;
  std::uint64_t seed = 0, site = 0;
  const StepValues* step = nullptr;
  std::int64_t first_sequence = 0, first_position = 0, first_head = 0;

  Dropping() = default;
  explicit Dropping(const DropoutSite& site);
};

struct FlashCall {
  int seq = 0, micro_batch = 0, heads = 0, kv_heads = 0, group = 0, head_dim = 0;
  bool causal = false;
  float scale = 0, scale_log2 = 0;  // 1 / sqrt(head_dim), the same times log2(e)
  Dropping drop;

  FlashCall(const AttentionShape& s, const DropoutSite& site);

  // Elements between positions of a sequence, and from position 0 of the first to that of a (query or key) head.
  __host__ __device__ std::int64_t qkv_stride() const {
    return static_cast<std::int64_t>(micro_batch) * kv_heads * (group + 2) * head_dim;
  }
  __host__ __device__ std::int64_t out_stride() const {
    return static_cast<std::int64_t>(micro_batch) * heads * head_dim;
  }
  __host__ __device__ std::int64_t query(int batch, int head) const { return slot(batch, head / group, head % group); }
  __host__ __device__ std::int64_t key(int batch, int kv_head) const { return slot(batch, kv_head, group); }
  __host__ __device__ std::int64_t value(int batch, int kv_head) const { return slot(batch, kv_head, group + 1); }
  __host__ __device__ std::int64_t out(int batch, int head) const {
    return (static_cast<std::int64_t>(batch) * heads + head) * head_dim;
  }
  // Of logsumexp [seq, micro_batch, heads].
  __host__ __device__ std::int64_t per_row(int position, int batch, int head) const {
    return (static_cast<std::int64_t>(position) * micro_batch + batch) * heads + head;
  }

 private:
  __host__ __device__ std::int64_t slot(int batch, int kv_head, int index) const {
    return ((static_cast<std::int64_t>(batch) * kv_heads + kv_head) * (group + 2) + index) * head_dim;
  }
};

inline constexpr int kFlashMaxHeadDim = 256;

// Operands of one 16-bit type, at multiples of 16 bytes, head_dim a multiple of 8 and at most 256.
struct FlashTensors {
  const void* qkv = nullptr;
  const void* d_out = nullptr;  // backward
  const void* forward_out = nullptr;
  void* out = nullptr;  // forward
  void* d_qkv = nullptr;
  const float* logsumexp = nullptr;          // backward
  float* logsumexp_out = nullptr;            // forward
  std::size_t shared_of_multiprocessor = 0;  // bytes that the device has (backward)
};
template <class T>
void flash_forward_tiles(const FlashCall& call, const FlashTensors& x, cudaStream_t stream);
template <class T>
void flash_backward_tiles(const FlashCall& call, const FlashTensors& x, cudaStream_t stream);
// Dynamic shared memory that the largest kernel of a backward pass asks for.
std::size_t flash_shared_bytes(int head_dim, bool backward);

// Any types and alignments, head_dim at most 256.
void flash_forward_plain(const FlashCall& call, In qkv, Out out, float* logsumexp, cudaStream_t stream);
void flash_backward_plain(const FlashCall& call, In d_out, In qkv, In out, const float* logsumexp, Out d_qkv,
                          cudaStream_t stream);

}  // namespace rehearse::kernels::cuda
