// Flash attention by multiply-adds in fp32, for fp32 and for what the matrix units do not take (odd widths, unaligned
// or mixed operands). A warp has one query (forward, dQ) or one key (dK, dV), a block eight of them; they go over tiles
// of 32 of the other, widened to fp32 in shared memory: each lane has one score of the tile, then columns of the sums.
// Same passes as the tiled kernels, but rowsum(dO O) is computed where it is needed. See flash.h.
#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_rows.h"

namespace rehearse::kernels::cuda {
namespace {

// Whether dropout keeps one element, and its draw.
__device__ bool keeps(const FlashCall& f, int batch, int head, int query, int key) {
  const Dropping& d = f.drop;
  if (!d.step) return true;
  const std::int64_t column = (d.first_head + head) * f.seq + key;
  const unsigned kept = kept_of_group(mix_key(mix_key(d.seed, static_cast<std::uint64_t>(d.step->step)), d.site),
                                      static_cast<std::uint64_t>(d.step->first_sequence + d.first_sequence + batch),
                                      d.first_position + query, column / kDropoutGroup, d.threshold);
  return (kept >> (column % kDropoutGroup) & 1U) != 0;
}

template <class T>
__global__ void __launch_bounds__(32 * kFlashWarps)
    forward_kernel(FlashCall f, Source<T> qkv, Target<T> out, float* logsumexp) {
  REHEARSE_DYNAMIC_SHARED(float, keys);
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const values = keys + kFlashTile * width;
  float* const row = values + kFlashTile * width + warp * f.head_dim;
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z);
  const int block_query = static_cast<int>(blockIdx.x) * kFlashWarps, query = block_query + warp;
  stage_row(row, qkv, f.query(batch, head) + query * f.qkv_stride(), query < f.seq, f.head_dim);
  float maximum = -__builtin_huge_valf(), sum = 0, sums[kFlashColumns] = {};
  const int limit = f.causal && block_query + kFlashWarps < f.seq ? block_query + kFlashWarps : f.seq;
  for (int first = 0; first < limit; first += kFlashTile) {
    __syncthreads();
    stage_rows(keys, qkv, f.key(batch, head / f.group), f.qkv_stride(), first, f.seq, f.head_dim);
    stage_rows(values, qkv, f.value(batch, head / f.group), f.qkv_stride(), first, f.seq, f.head_dim);
    __syncthreads();
    const int key = first + lane;
    float score = dot(row, keys + lane * width, f.head_dim) * f.scale;
    if (key >= f.seq || (f.causal && key > query)) score = -__builtin_huge_valf();
    const float now = fmaxf(maximum, flash_warp_max(score));
    if (now == -__builtin_huge_valf()) continue;  // nothing seen yet
    const float p = expf(score - now), fade = expf(maximum - now);
    maximum = now;
    sum = sum * fade + flash_warp_sum(p);
#pragma unroll
    for (int n = 0; n < kFlashColumns; ++n) sums[n] *= fade;
    add_rows(sums, keeps(f, batch, head, query, key) ? p : 0.0F, values, f.head_dim);
  }
  if (query >= f.seq) return;
  if (lane == 0) logsumexp[f.per_row(query, batch, head)] = maximum + logf(sum);
  put_row(sums, f.drop.kept_scale / sum, out, f.out(batch, head) + query * f.out_stride(), f.head_dim);
}

// dS of one element without the softmax scale, and the probability that multiplied the value.
struct Gradient {
  float score, kept;
};
__device__ Gradient gradient_of(const FlashCall& f, float score, float d_probability, float row_sum, float delta,
                                int batch, int head, int query, int key) {
  if (query >= f.seq || key >= f.seq || (f.causal && key > query)) return {0, 0};
  const float p = expf(score * f.scale - row_sum);
  const bool keep = keeps(f, batch, head, query, key);
  return {p * ((keep ? d_probability * f.drop.kept_scale : 0.0F) - delta), keep ? p * f.drop.kept_scale : 0.0F};
}

template <class T>
__global__ void __launch_bounds__(32 * kFlashWarps, 2)
    queries_kernel(FlashCall f, Source<T> d_out, Source<T> qkv, Source<T> out, const float* logsumexp,
                   Target<T> d_qkv) {
  REHEARSE_DYNAMIC_SHARED(float, keys);
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const values = keys + kFlashTile * width;
  float* const row = values + kFlashTile * width + 2 * warp * f.head_dim;
  float* const d_row = row + f.head_dim;
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z);
  const int block_query = static_cast<int>(blockIdx.x) * kFlashWarps, query = block_query + warp;
  const bool there = query < f.seq;
  const std::int64_t at_out = f.out(batch, head) + query * f.out_stride();
  stage_row(row, qkv, f.query(batch, head) + query * f.qkv_stride(), there, f.head_dim);
  stage_row(d_row, d_out, at_out, there, f.head_dim);
  float delta = 0;
  for (int c = lane; c < f.head_dim && there; c += 32) delta += d_out.get(at_out + c) * out.get(at_out + c);
  delta = flash_warp_sum(delta);
  const float row_sum = there ? logsumexp[f.per_row(query, batch, head)] : 0.0F;
  float sums[kFlashColumns] = {};
  const int limit = f.causal && block_query + kFlashWarps < f.seq ? block_query + kFlashWarps : f.seq;
  for (int first = 0; first < limit; first += kFlashTile) {
    __syncthreads();
    stage_rows(keys, qkv, f.key(batch, head / f.group), f.qkv_stride(), first, f.seq, f.head_dim);
    stage_rows(values, qkv, f.value(batch, head / f.group), f.qkv_stride(), first, f.seq, f.head_dim);
    __syncthreads();
    const Gradient g =
        gradient_of(f, dot(row, keys + lane * width, f.head_dim), dot(d_row, values + lane * width, f.head_dim),
                    row_sum, delta, batch, head, query, first + lane);
    add_rows(sums, g.score, keys, f.head_dim);
  }
  if (there) put_row(sums, f.scale, d_qkv, f.query(batch, head) + query * f.qkv_stride(), f.head_dim);
}

template <class T>
__global__ void __launch_bounds__(32 * kFlashWarps, 2)
    keys_kernel(FlashCall f, Source<T> d_out, Source<T> qkv, Source<T> out, const float* logsumexp, Target<T> d_qkv) {
  REHEARSE_DYNAMIC_SHARED(float, queries);
  __shared__ float deltas[kFlashTile], row_sums[kFlashTile];
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const gradients = queries + kFlashTile * width;
  float* const key_row = gradients + kFlashTile * width + 2 * warp * f.head_dim;
  float* const value_row = key_row + f.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z);
  const int block_key = static_cast<int>(blockIdx.x) * kFlashWarps, key = block_key + warp;
  stage_row(key_row, qkv, f.key(batch, kv_head) + key * f.qkv_stride(), key < f.seq, f.head_dim);
  stage_row(value_row, qkv, f.value(batch, kv_head) + key * f.qkv_stride(), key < f.seq, f.head_dim);
  float d_key[kFlashColumns] = {}, d_value[kFlashColumns] = {};
  for (int head = kv_head * f.group; head < (kv_head + 1) * f.group; ++head) {
    for (int first = f.causal ? block_key / kFlashTile * kFlashTile : 0; first < f.seq; first += kFlashTile) {
      __syncthreads();
      stage_rows(queries, qkv, f.query(batch, head), f.qkv_stride(), first, f.seq, f.head_dim);
      stage_rows(gradients, d_out, f.out(batch, head), f.out_stride(), first, f.seq, f.head_dim);
      for (int i = warp; i < kFlashTile; i += kFlashWarps) {
        const int query = first + i;
        const std::int64_t at = f.out(batch, head) + query * f.out_stride();
        float delta = 0;
        for (int c = lane; c < f.head_dim && query < f.seq; c += 32) delta += d_out.get(at + c) * out.get(at + c);
        delta = flash_warp_sum(delta);
        if (lane == 0) {
          deltas[i] = delta;
          row_sums[i] = query < f.seq ? logsumexp[f.per_row(query, batch, head)] : 0.0F;
        }
      }
      __syncthreads();
      const Gradient g = gradient_of(f, dot(key_row, queries + lane * width, f.head_dim),
                                     dot(value_row, gradients + lane * width, f.head_dim), row_sums[lane], deltas[lane],
                                     batch, head, first + lane, key);
      add_rows(d_key, g.score, queries, f.head_dim);
      add_rows(d_value, g.kept, gradients, f.head_dim);
    }
  }
  if (key >= f.seq) return;
  put_row(d_key, f.scale, d_qkv, f.key(batch, kv_head) + key * f.qkv_stride(), f.head_dim);
  put_row(d_value, 1.0F, d_qkv, f.value(batch, kv_head) + key * f.qkv_stride(), f.head_dim);
}

dim3 grid_for(const FlashCall& f, int heads) {
  return dim3(static_cast<unsigned>((f.seq + kFlashWarps - 1) / kFlashWarps), static_cast<unsigned>(heads),
              static_cast<unsigned>(f.micro_batch));
}
std::size_t shared_bytes(const FlashCall& f, int rows_of_a_warp) {
  return sizeof(float) *
         static_cast<std::size_t>(2 * kFlashTile * (f.head_dim + 1) + rows_of_a_warp * kFlashWarps * f.head_dim);
}

}  // namespace

void flash_forward_plain(const FlashCall& f, In qkv, Out out, float* logsumexp, cudaStream_t stream) {
  fp32_or_any({qkv, out}, [&]<class T>() {
    launch(forward_kernel<T>, grid_for(f, f.heads), dim3(32 * kFlashWarps), shared_bytes(f, 1), stream, f,
           Source<T>(qkv), Target<T>(out), logsumexp);
  });
}

void flash_backward_plain(const FlashCall& f, In d_out, In qkv, In out, const float* logsumexp, Out d_qkv,
                          cudaStream_t stream) {
  fp32_or_any({d_out, qkv, out, d_qkv}, [&]<class T>() {
    launch(keys_kernel<T>, grid_for(f, f.kv_heads), dim3(32 * kFlashWarps), shared_bytes(f, 2), stream, f,
           Source<T>(d_out), Source<T>(qkv), Source<T>(out), logsumexp, Target<T>(d_qkv));
    launch(queries_kernel<T>, grid_for(f, f.heads), dim3(32 * kFlashWarps), shared_bytes(f, 2), stream, f,
           Source<T>(d_out), Source<T>(qkv), Source<T>(out), logsumexp, Target<T>(d_qkv));
  });
}

}  // namespace rehearse::kernels::cuda
