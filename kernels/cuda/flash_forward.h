// Flash attention forward on the matrix units. A block has a tile of queries of one head and goes over the keys in
// tiles of 64; a warp has 32 of the queries (16 where head_dim is above 128), its sums of P V in registers. While S = Q
// K^T is computed the values of the tile are on their way, while P V is, the keys of the next. The rows of queries that
// see most keys start first. See flash.h.
#pragma once

#include "kernels/cuda/flash_tile.h"

namespace rehearse::kernels::cuda {

template <int D, bool kDrop>
struct ForwardTiles {
  static constexpr int kM = D <= 128 ? 2 : 1;                                  // times 16 queries a warp
  static constexpr int kKeys = D <= 64 ? 64 : kDrop ? 32 : D > 128 ? 64 : 48;  // masks are in registers too
  static constexpr int kQueries = 16 * kM * kFlashWarps;
  // The queries' fragments stay in registers where those suffice: 2 D of them (kM = 2), next to 4 D of sums.
  static constexpr bool kHeld = D <= 80;
  static constexpr std::size_t kSharedBytes = std::size_t{2} * (kQueries + 2 * kKeys) * tile_row<D>();
};

// One warp's rows: what the online softmax carries from tile to tile. Rows m, half: query 16 m + 8 half + lane / 4.
template <int kM>
struct Online {
  float maximum[kM][2], sum[kM][2];  // of the scaled scores in base 2; of this lane's columns
};

// Scores that are not to be seen become minus infinity.
template <int kM, int kN>
__device__ __forceinline__ void mask_scores(float (&s)[kM][kN][4], bool causal, int first_query, int first_key,
                                            int seq) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = first_query + 16 * m + g + i / 2 * 8, key = first_key + 8 * n + 2 * t + i % 2;
        if (key >= seq || (causal && key > query)) s[m][n][i] = -__builtin_huge_valf();
      }
}

// Scores become probabilities against the running maximum; what was summed before fades to it.
template <int kM, int kN, int kO>
__device__ __forceinline__ void softmax_step(float (&s)[kM][kN][4], Online<kM>* online, float (&sums)[kM][kO][4],
                                             float scale_log2) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = s[m][0][2 * half];
#pragma unroll
      for (int n = 0; n < kN; ++n) largest = fmaxf(largest, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
      const float now = fmaxf(online->maximum[m][half], largest * scale_log2);
      const float fade = fast_exp2(online->maximum[m][half] - now);
      online->maximum[m][half] = now;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[m][n][i] = fast_exp2(s[m][n][i] * scale_log2 - now);
          total += s[m][n][i];
        }
      online->sum[m][half] = online->sum[m][half] * fade + total;
#pragma unroll
      for (int n = 0; n < kO; ++n) {
        sums[m][n][2 * half] *= fade;
        sums[m][n][2 * half + 1] *= fade;
      }
    }
}

// Rows are queries. Kept probabilities are not scaled: that is done once, to the sums.
template <int kM, int kN>
__device__ __forceinline__ void drop_rows(float (&p)[kM][kN][4], const unsigned (&keep)[kM][2][kN / 4]) {
  const unsigned t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!(keep[m][i / 2][n / 4] >> (n % 4 * 8 + static_cast<int>(2 * t) + i % 2) & 1U)) p[m][n][i] = 0;
}
template <int kM, int kWords>
__device__ __forceinline__ void draw_rows(unsigned (&keep)[kM][2][kWords], const Dropper& dropper, int first_query,
                                          int first_key) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        keep[m][half][w] = dropper.quad(first_query + 16 * m + 8 * half + g, first_key + 32 * w);
}

// Two blocks of a multiprocessor take all its registers: with no number ptxas (13.0) spills to fit a third at D = 32.
template <class T, int D, bool kDrop>
__global__ void __launch_bounds__(kFlashThreads, 2)
    flash_forward_kernel(FlashCall f, const T* qkv, T* out, float* logsumexp) {
  using Tiles = ForwardTiles<D, kDrop>;
  constexpr int kM = Tiles::kM, kN = Tiles::kKeys / 8;
  REHEARSE_DYNAMIC_SHARED(T, queries);
  T* const keys = queries + Tiles::kQueries * tile_row<D>();
  T* const values = keys + Tiles::kKeys * tile_row<D>();
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z), kv_head = head / f.group;
  const int block_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiles::kQueries;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_query = block_query + 16 * kM * warp;
  const T* const key_rows = qkv + f.key(batch, kv_head);
  const T* const value_rows = qkv + f.value(batch, kv_head);
  const std::int64_t stride = f.qkv_stride();

  load_tile<T, D, Tiles::kQueries>(queries, qkv + f.query(batch, head), stride, block_query, f.seq, f.head_dim);
  load_tile<T, D, Tiles::kKeys>(keys, key_rows, stride, 0, f.seq, f.head_dim);
  commit_copies();
  T* const mine = queries + 16 * kM * warp * tile_row<D>();
  float sums[kM][D / 8][4] = {};
  Online<kM> online;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      online.maximum[m][half] = -__builtin_huge_valf();
      online.sum[m][half] = 0;
    }

  [[maybe_unused]] unsigned held[D / 16][kM][4];
  if constexpr (Tiles::kHeld) {
    wait_copies<0>();
    __syncthreads();  // the queries are here
    load_fragments<T, D, kM>(held, mine);
  }

  const int limit = f.causal && block_query + Tiles::kQueries < f.seq ? block_query + Tiles::kQueries : f.seq;
  for (int first_key = 0; first_key < limit; first_key += Tiles::kKeys) {
    wait_copies<0>();
    __syncthreads();  // the keys are here; nobody reads the values of before
    load_tile<T, D, Tiles::kKeys>(values, value_rows, stride, first_key, f.seq, f.head_dim);
    commit_copies();
    const bool sees = !f.causal || first_key < first_query + 16 * kM;  // the same for the whole warp
    float s[kM][kN][4];
    unsigned keep[kM][2][kN / 4];
    if (sees) {
      if constexpr (kDrop) draw_rows(keep, Dropper(f, batch, head), first_query, first_key);
      if constexpr (Tiles::kHeld)
        multiply_transposed<T, D>(s, held, keys);
      else
        multiply_transposed<T, D>(s, mine, keys);
    }
    wait_copies<0>();
    __syncthreads();  // the values are here; nobody reads the keys
    if (first_key + Tiles::kKeys < limit) {
      load_tile<T, D, Tiles::kKeys>(keys, key_rows, stride, first_key + Tiles::kKeys, f.seq, f.head_dim);
      commit_copies();
    }
    if (!sees) continue;
    if (first_key + Tiles::kKeys > f.seq || (f.causal && first_key + Tiles::kKeys > first_query + 1))
      mask_scores(s, f.causal, first_query, first_key, f.seq);
    softmax_step(s, &online, sums, f.scale_log2);
    if constexpr (kDrop) drop_rows(s, keep);
    multiply_add<T, D, D>(sums, s, values, 0);
  }

#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = online.sum[m][half];
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
      const int query = first_query + 16 * m + 8 * half + lane / 4;
      if (lane % 4 == 0 && query < f.seq)
        logsumexp[f.per_row(query, batch, head)] = online.maximum[m][half] * kLn2 + logf(total);
      const float factor = f.drop.kept_scale / total;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        sums[m][n][2 * half] *= factor;
        sums[m][n][2 * half + 1] *= factor;
      }
    }
    const int query = first_query + 16 * m;
    store_rows<T, D, D>(sums[m], mine + 16 * m * tile_row<D>(), out + f.out(batch, head) + query * f.out_stride(),
                        f.out_stride(), f.seq - query, 0, f.head_dim);
  }
}

template <class T, int D, bool kDrop>
void launch_flash_forward(const FlashCall& f, const FlashTensors& x, cudaStream_t stream) {
  using Tiles = ForwardTiles<D, kDrop>;
  const auto tiles = static_cast<unsigned>((f.seq + Tiles::kQueries - 1) / Tiles::kQueries);
  launch(flash_forward_kernel<T, D, kDrop>,
         dim3(tiles, static_cast<unsigned>(f.heads), static_cast<unsigned>(f.micro_batch)), dim3(kFlashThreads),
         Tiles::kSharedBytes, stream, f, static_cast<const T*>(x.qkv), static_cast<T*>(x.out), x.logsumexp_out);
}

// The narrowest tiles that hold head_dim. Instantiated in one .cu file a type.
template <class T>
void flash_forward_tiles(const FlashCall& f, const FlashTensors& x, cudaStream_t stream) {
  flash_by_width(f.head_dim, [&]<int D>() {
    if (f.drop.step) {
      launch_flash_forward<T, D, true>(f, x, stream);
    } else {
      launch_flash_forward<T, D, false>(f, x, stream);
    }
  });
}

// In flash_forward_bf16.cu and flash_forward_f16.cu.
extern template void flash_forward_tiles<__nv_bfloat16>(const FlashCall&, const FlashTensors&, cudaStream_t);
extern template void flash_forward_tiles<__half>(const FlashCall&, const FlashTensors&, cudaStream_t);

}  // namespace rehearse::kernels::cuda
