// Flash attention backward on the matrix units, in three kernels and without atomics. P is recomputed from logsumexp.
//   delta: rowsum(dO O), which is rowsum(P dP), with dropout too. It waits in the place of the row's query gradient in
//          d_qkv (4 bytes of it), which is written last.
//   keys:  a block has a tile of keys and goes over the queries, of all heads that the key head serves: dK, dV.
//   queries: a block has a tile of queries and goes over the keys: dQ.
// In `keys` everything is computed transposed (S^T = K Q^T, dP^T = V dO^T), so that P^T and dS^T come out as the left
// operands of dV = P^T dO and dK = dS^T Q, in registers. Tiles of what a kernel goes over are loaded one ahead. See
// flash.h.
#pragma once

#include "kernels/cuda/flash_tile.h"

namespace rehearse::kernels::cuda {

template <int D>
struct KeyTiles {
  static constexpr int kM = D <= 64 ? 2 : 1;  // times 16 keys a warp
  static constexpr int kKeys = 16 * kM * kFlashWarps, kQueries = 32;
  static constexpr int kOut = D > 128 ? D / 2 : D;  // columns of dK and dV: with more, the sums do not fit in registers
  static constexpr int kStage = 2 * kQueries * tile_row<D>();  // elements: queries, output gradients
  static constexpr std::size_t kSharedBytes =
      std::size_t{2} * (2 * kKeys * tile_row<D>() + 2 * kStage) + std::size_t{4} * 2 * 2 * kQueries;
};
// kM: times 16 queries a warp. With two, a fragment of keys or values serves two products, but a block above 64 columns
// takes so much shared memory that two of them fit in a multiprocessor of 227 KiB only (compute capability 9.0).
template <int D, int kM>
struct QueryTiles {
  static constexpr int kQueries = 16 * kM * kFlashWarps, kKeys = 32;
  static constexpr int kStage = 2 * kKeys * tile_row<D>();  // elements: keys, values
  static constexpr std::size_t kSharedBytes = std::size_t{2} * (2 * kQueries * tile_row<D>() + 2 * kStage);
};

// One float in the first 4 bytes of a row's query gradient.
template <class T>
__device__ __forceinline__ float* delta_of(const FlashCall& f, T* d_qkv, int query, int batch, int head) {
  return reinterpret_cast<float*>(d_qkv + f.query(batch, head) + query * f.qkv_stride());
}

// Eight lanes a (row, head).
template <class T>
__global__ void __launch_bounds__(256)
    flash_delta_kernel(FlashCall f, const T* d_out, const T* out, T* d_qkv, std::int64_t row_heads) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x / 8;
  const int part = static_cast<int>(threadIdx.x) % 8;
  float sum = 0;
  for (int column = 8 * part; column < f.head_dim && i < row_heads; column += 64) {
    alignas(16) T a[8], b[8];
    *reinterpret_cast<uint4*>(a) = *reinterpret_cast<const uint4*>(d_out + i * f.head_dim + column);
    *reinterpret_cast<uint4*>(b) = *reinterpret_cast<const uint4*>(out + i * f.head_dim + column);
#pragma unroll
    for (int c = 0; c < 8; ++c) sum += static_cast<float>(a[c]) * static_cast<float>(b[c]);
  }
#pragma unroll
  for (int lanes = 4; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, lanes);
  if (part != 0 || i >= row_heads) return;
  const int head = static_cast<int>(i % f.heads), batch = static_cast<int>(i / f.heads % f.micro_batch);
  *delta_of(f, d_qkv, static_cast<int>(i / f.heads / f.micro_batch), batch, head) = sum;
}

// Scores (of a transposed tile: rows keys, columns queries) become what multiplied the values, P or kept P; dP becomes
// dS without the softmax scale. row_sums and deltas are of the queries of the tile, in shared memory.
template <bool kDrop, int kM, int kN>
__device__ __forceinline__ void backward_columns(float (&s)[kM][kN][4], float (&d)[kM][kN][4], const FlashCall& f,
                                                 const float* row_sums, const float* deltas, int first_key,
                                                 int first_query, unsigned keep) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const bool masked = f.causal && first_query < first_key + 16 * kM;
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * n + 2 * t + i;
      const float row_sum = row_sums[column] * kLog2E, delta = deltas[column];
      unsigned mine = 0;
      if constexpr (kDrop) mine = __shfl_sync(0xFFFFFFFFU, keep, column);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 16 * m + 8 * half + g, at = 2 * half + i;
          float p = fast_exp2(s[m][n][at] * f.scale_log2 - row_sum);
          if (masked && first_key + row > first_query + column) p = 0;
          float gradient = d[m][n][at];
          s[m][n][at] = p;
          if constexpr (kDrop) {
            const bool kept = (mine >> row & 1U) != 0;
            gradient = kept ? gradient * f.drop.kept_scale : 0;
            s[m][n][at] = kept ? p : 0;
          }
          d[m][n][at] = p * (gradient - delta);
        }
    }
}

// What a block of the `keys` kernel goes over: queries of the heads of one group, in tiles, for each head those that
// see the block's first key.
struct QueryWalk {
  int first_head, heads, first_tile, tiles;

  __device__ int steps() const { return heads * (tiles - first_tile); }
  __device__ int head(int step) const { return first_head + step / (tiles - first_tile); }
  __device__ int tile(int step) const { return first_tile + step % (tiles - first_tile); }
};

template <class T, int D>
__device__ __forceinline__ void load_queries(T* stage, float* sums, const FlashCall& f, const T* qkv, const T* d_out,
                                             const float* logsumexp, T* d_qkv, int batch, int head, int first_query) {
  using Tiles = KeyTiles<D>;
  load_tile<T, D, Tiles::kQueries>(stage, qkv + f.query(batch, head), f.qkv_stride(), first_query, f.seq, f.head_dim);
  load_tile<T, D, Tiles::kQueries>(stage + Tiles::kQueries * tile_row<D>(), d_out + f.out(batch, head), f.out_stride(),
                                   first_query, f.seq, f.head_dim);
  const int thread = static_cast<int>(threadIdx.x), query = first_query + thread % Tiles::kQueries;
  const bool there = query < f.seq;
  if (thread < Tiles::kQueries)
    copy_async<4>(sums + thread, logsumexp + (there ? f.per_row(query, batch, head) : 0), there);
  else if (thread < 2 * Tiles::kQueries)
    copy_async<4>(sums + thread, delta_of(f, d_qkv, there ? query : 0, batch, head), there);
  commit_copies();
}

template <class T, int D, bool kDrop>
__global__ void __launch_bounds__(kFlashThreads)
    flash_keys_kernel(FlashCall f, const T* qkv, const T* d_out, const float* logsumexp, T* d_qkv) {
  using Tiles = KeyTiles<D>;
  constexpr int kM = Tiles::kM, kN = Tiles::kQueries / 8, kOut = Tiles::kOut;
  REHEARSE_DYNAMIC_SHARED(T, keys);
  T* const values = keys + Tiles::kKeys * tile_row<D>();
  T* const stages = values + Tiles::kKeys * tile_row<D>();
  float* const all_sums = reinterpret_cast<float*>(stages + 2 * Tiles::kStage);
  const int kv_head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z);
  const int block_key = static_cast<int>(blockIdx.x) / (D / kOut) * Tiles::kKeys;
  const int first_column = static_cast<int>(blockIdx.x) % (D / kOut) * kOut;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_key = block_key + 16 * kM * warp;
  const QueryWalk walk{kv_head * f.group, f.group, f.causal ? block_key / Tiles::kQueries : 0,
                       (f.seq + Tiles::kQueries - 1) / Tiles::kQueries};
  load_tile<T, D, Tiles::kKeys>(keys, qkv + f.key(batch, kv_head), f.qkv_stride(), block_key, f.seq, f.head_dim);
  load_tile<T, D, Tiles::kKeys>(values, qkv + f.value(batch, kv_head), f.qkv_stride(), block_key, f.seq, f.head_dim);
  const auto load = [&](int step) {
    load_queries<T, D>(stages + step % 2 * Tiles::kStage, all_sums + step % 2 * 2 * Tiles::kQueries, f, qkv, d_out,
                       logsumexp, d_qkv, batch, walk.head(step), walk.tile(step) * Tiles::kQueries);
  };
  load(0);
  T* const my_keys = keys + 16 * kM * warp * tile_row<D>();
  T* const my_values = values + 16 * kM * warp * tile_row<D>();
  float d_key[kM][kOut / 8][4] = {}, d_value[kM][kOut / 8][4] = {};

  const int steps = walk.steps();
  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();  // this step's tiles are here; nobody reads those of the step before
    if (step + 1 < steps) load(step + 1);
    const int first_query = walk.tile(step) * Tiles::kQueries;
    if (f.causal && first_query + Tiles::kQueries <= first_key) continue;  // the whole warp
    const T* const queries = stages + step % 2 * Tiles::kStage;
    const T* const gradients = queries + Tiles::kQueries * tile_row<D>();
    const float* const sums = all_sums + step % 2 * 2 * Tiles::kQueries;
    unsigned keep = 0;  // bit i: whether query `lane` of the tile keeps key i of the warp's
    if constexpr (kDrop)
      keep = Dropper(f, batch, walk.head(step)).template alone<16 * kM>(first_query + lane, first_key);
    float s[kM][kN][4], d[kM][kN][4];
    multiply_transposed<T, D>(s, my_keys, queries);
    multiply_transposed<T, D>(d, my_values, gradients);
    backward_columns<kDrop>(s, d, f, sums, sums + Tiles::kQueries, first_key, first_query, keep);
    multiply_add<T, D, kOut>(d_value, s, gradients, first_column);
    multiply_add<T, D, kOut>(d_key, d, queries, first_column);
  }

  wait_copies<0>();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const int key = first_key + 16 * m;
#pragma unroll
    for (int n = 0; n < kOut / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        d_key[m][n][i] *= f.scale;
        d_value[m][n][i] *= f.drop.kept_scale;
      }
    T* const staging = my_keys + 16 * m * tile_row<D>();
    const std::int64_t row = key * f.qkv_stride();
    store_rows<T, D, kOut>(d_key[m], staging, d_qkv + f.key(batch, kv_head) + row, f.qkv_stride(), f.seq - key,
                           first_column, f.head_dim);
    store_rows<T, D, kOut>(d_value[m], staging, d_qkv + f.value(batch, kv_head) + row, f.qkv_stride(), f.seq - key,
                           first_column, f.head_dim);
  }
}

// As backward_columns, of a tile that is not transposed; only dS is needed.
template <bool kDrop, int kM, int kN>
__device__ __forceinline__ void backward_rows(const float (&s)[kM][kN][4], float (&d)[kM][kN][4], const FlashCall& f,
                                              const float (&row_sum)[kM][2], const float (&delta)[kM][2],
                                              int first_query, int first_key, const unsigned (&keep)[kM][2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const bool masked = f.causal && first_key + 8 * kN > first_query + 1;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + 2 * t + i % 2, row = 16 * m + 8 * (i / 2) + g;
        float p = fast_exp2(s[m][n][i] * f.scale_log2 - row_sum[m][i / 2]);
        if (masked && first_key + column > first_query + row) p = 0;
        float gradient = d[m][n][i];
        if constexpr (kDrop) gradient = (keep[m][i / 2] >> column & 1U) ? gradient * f.drop.kept_scale : 0;
        d[m][n][i] = p * (gradient - delta[m][i / 2]);
      }
}

template <class T, int D, int kKeys>
__device__ __forceinline__ void load_keys(T* stage, const FlashCall& f, const T* qkv, int batch, int kv_head,
                                          int first_key) {
  load_tile<T, D, kKeys>(stage, qkv + f.key(batch, kv_head), f.qkv_stride(), first_key, f.seq, f.head_dim);
  load_tile<T, D, kKeys>(stage + kKeys * tile_row<D>(), qkv + f.value(batch, kv_head), f.qkv_stride(), first_key, f.seq,
                         f.head_dim);
  commit_copies();
}

template <class T, int D, int kM, bool kDrop>
__global__ void __launch_bounds__(kFlashThreads)
    flash_queries_kernel(FlashCall f, const T* qkv, const T* d_out, const float* logsumexp, T* d_qkv) {
  using Tiles = QueryTiles<D, kM>;
  constexpr int kN = Tiles::kKeys / 8;
  REHEARSE_DYNAMIC_SHARED(T, queries);
  T* const gradients = queries + Tiles::kQueries * tile_row<D>();
  T* const stages = gradients + Tiles::kQueries * tile_row<D>();
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z), kv_head = head / f.group;
  const int block_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiles::kQueries;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_query = block_query + 16 * kM * warp;
  load_tile<T, D, Tiles::kQueries>(queries, qkv + f.query(batch, head), f.qkv_stride(), block_query, f.seq, f.head_dim);
  load_tile<T, D, Tiles::kQueries>(gradients, d_out + f.out(batch, head), f.out_stride(), block_query, f.seq,
                                   f.head_dim);
  load_keys<T, D, Tiles::kKeys>(stages, f, qkv, batch, kv_head, 0);
  float row_sum[kM][2], delta[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + 16 * m + 8 * half + lane / 4;
      row_sum[m][half] = query < f.seq ? logsumexp[f.per_row(query, batch, head)] * kLog2E : 0;
      delta[m][half] = query < f.seq ? *delta_of(f, d_qkv, query, batch, head) : 0;
    }
  T* const my_queries = queries + 16 * kM * warp * tile_row<D>();
  T* const my_gradients = gradients + 16 * kM * warp * tile_row<D>();
  float d_query[kM][D / 8][4] = {};

  const int limit = f.causal && block_query + Tiles::kQueries < f.seq ? block_query + Tiles::kQueries : f.seq;
  for (int first_key = 0, step = 0; first_key < limit; first_key += Tiles::kKeys, ++step) {
    wait_copies<0>();
    __syncthreads();  // this step's tiles are here; nobody reads those of the step before
    if (first_key + Tiles::kKeys < limit)
      load_keys<T, D, Tiles::kKeys>(stages + (step + 1) % 2 * Tiles::kStage, f, qkv, batch, kv_head,
                                    first_key + Tiles::kKeys);
    if (f.causal && first_key >= first_query + 16 * kM) continue;  // the whole warp
    const T* const keys = stages + step % 2 * Tiles::kStage;
    unsigned keep[kM][2] = {};
    if constexpr (kDrop) {
      const Dropper dropper(f, batch, head);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          keep[m][half] = dropper.quad(first_query + 16 * m + 8 * half + lane / 4, first_key);
    }
    float s[kM][kN][4], d[kM][kN][4];
    multiply_transposed<T, D>(s, my_queries, keys);
    multiply_transposed<T, D>(d, my_gradients, keys + Tiles::kKeys * tile_row<D>());
    backward_rows<kDrop>(s, d, f, row_sum, delta, first_query, first_key, keep);
    multiply_add<T, D, D>(d_query, d, keys, 0);
  }

#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const int query = first_query + 16 * m;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) d_query[m][n][i] *= f.scale;
    store_rows<T, D, D>(d_query[m], my_queries + 16 * m * tile_row<D>(),
                        d_qkv + f.query(batch, head) + query * f.qkv_stride(), f.qkv_stride(), f.seq - query, 0,
                        f.head_dim);
  }
}

template <class T, int D, int kM, bool kDrop>
void launch_flash_queries(const FlashCall& f, const FlashTensors& x, cudaStream_t stream) {
  using Tiles = QueryTiles<D, kM>;
  const int tiles = (f.seq + Tiles::kQueries - 1) / Tiles::kQueries;
  launch(flash_queries_kernel<T, D, kM, kDrop>,
         dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(f.heads), static_cast<unsigned>(f.micro_batch)),
         dim3(kFlashThreads), Tiles::kSharedBytes, stream, f, static_cast<const T*>(x.qkv),
         static_cast<const T*>(x.d_out), x.logsumexp, static_cast<T*>(x.d_qkv));
}

template <class T, int D, bool kDrop>
void launch_flash_backward(const FlashCall& f, const FlashTensors& x, cudaStream_t stream) {
  const auto* qkv = static_cast<const T*>(x.qkv);
  const auto* d_out = static_cast<const T*>(x.d_out);
  auto* d_qkv = static_cast<T*>(x.d_qkv);
  const float* logsumexp = x.logsumexp;
  const auto batch = static_cast<unsigned>(f.micro_batch);
  const std::int64_t row_heads = static_cast<std::int64_t>(f.seq) * f.micro_batch * f.heads;
  launch(flash_delta_kernel<T>, dim3(static_cast<unsigned>((row_heads + 31) / 32)), dim3(256), 0, stream, f, d_out,
         static_cast<const T*>(x.forward_out), d_qkv, row_heads);
  using K = KeyTiles<D>;
  const int key_tiles = (f.seq + K::kKeys - 1) / K::kKeys * (D / K::kOut);
  launch(flash_keys_kernel<T, D, kDrop>,
         dim3(static_cast<unsigned>(key_tiles), static_cast<unsigned>(f.kv_heads), batch), dim3(kFlashThreads),
         K::kSharedBytes, stream, f, qkv, d_out, logsumexp, d_qkv);
  if constexpr (D <= 64) {
    launch_flash_queries<T, D, 2, kDrop>(f, x, stream);
  } else if constexpr (D <= (kDrop ? 80 : 128)) {  // with masks, wider ones run out of registers
    // 1 KiB of each block is the system's.
    if (x.shared_of_multiprocessor >= 2 * (QueryTiles<D, 2>::kSharedBytes + 1024)) {
      launch_flash_queries<T, D, 2, kDrop>(f, x, stream);
    } else {
      launch_flash_queries<T, D, 1, kDrop>(f, x, stream);
    }
  } else {
    launch_flash_queries<T, D, 1, kDrop>(f, x, stream);
  }
}

template <class T>
void flash_backward_tiles(const FlashCall& f, const FlashTensors& x, cudaStream_t stream) {
  flash_by_width(f.head_dim, [&]<int D>() {
    if (f.drop.step) {
      launch_flash_backward<T, D, true>(f, x, stream);
    } else {
      launch_flash_backward<T, D, false>(f, x, stream);
    }
  });
}

// In flash_backward_bf16.cu and flash_backward_f16.cu.
extern template void flash_backward_tiles<__nv_bfloat16>(const FlashCall&, const FlashTensors&, cudaStream_t);
extern template void flash_backward_tiles<__half>(const FlashCall&, const FlashTensors&, cudaStream_t);

}  // namespace rehearse::kernels::cuda
