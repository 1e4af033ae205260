// Attention by multiply-adds in fp32, of whole sequences (flash_plain.cu) and of a context group's
// (context_attention.cu). A warp has one query (forward, dQ) or one key (dK, dV), a block eight of them; they go over
// tiles of 32 of the other, widened to fp32 in shared memory: each lane has one score of the tile, then columns of the
// sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/reduce.h"

namespace rehearse::kernels::cuda {

inline constexpr int kFlashWarps = 8, kFlashTile = 32,
                     kFlashColumns = kFlashMaxHeadDim / 32;  // columns of sums a lane has

__device__ inline float flash_warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}
__device__ inline float flash_warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}

// Rows [first, first + 32) below `limit` of a matrix, as fp32, rows head_dim + 1 apart; zeros beyond.
template <class T>
__device__ void stage_rows(float* to, const Source<T>& from, std::int64_t at, std::int64_t stride, int first, int limit,
                           int head_dim) {
  for (int i = static_cast<int>(threadIdx.x); i < kFlashTile * head_dim; i += 32 * kFlashWarps) {
    const int row = i / head_dim, column = i % head_dim;
    to[row * (head_dim + 1) + column] = first + row < limit ? from.get(at + (first + row) * stride + column) : 0.0F;
  }
}
// One row for this warp alone.
template <class T>
__device__ void stage_row(float* to, const Source<T>& from, std::int64_t at, bool there, int head_dim) {
  for (int c = static_cast<int>(threadIdx.x) % 32; c < head_dim; c += 32) to[c] = there ? from.get(at + c) : 0.0F;
}
__device__ inline float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}
// sums[c] += weight of row i * rows[i][c], over the 32 rows; lane l has columns l, l + 32, ...
__device__ inline void add_rows(float (&sums)[kFlashColumns], float weight, const float* rows, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < kFlashTile; ++i) {
    const float w = __shfl_sync(kAllLanes, weight, i);
#pragma unroll
    for (int n = 0; n < kFlashColumns; ++n)
      if (lane + 32 * n < head_dim) sums[n] += w * rows[i * (head_dim + 1) + lane + 32 * n];
  }
}
template <class T>
__device__ void put_row(const float (&sums)[kFlashColumns], float factor, const Target<T>& to, std::int64_t at,
                        int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kFlashColumns; ++n)
    if (lane + 32 * n < head_dim) to.put(at + lane + 32 * n, sums[n] * factor);
}

// The kernels, for rows of queries and keys that lie as `Rows` says (WholeRows in flash_plain.cu, ContextRows in
// context_attention.cu):
//   f                         the call; keys(): how many there are; merge(): whether what is there is added to
//   key, value (batch, head)  where these begin in the operand of keys and values, kv_stride() apart
//   d_query (batch, head)     the same of the gradients of queries, d_query_stride() apart
//   sees(query, key)          whether there are both and no mask is between them; keeps(...): nor dropout
//   seen_by(query)            of a block's queries from there on, for beyond(first, .): they see nothing of a tile of
//   keys seeing(key)               of a block's keys from there on, for before(first, .): a tile of queries sees none
//   of them
template <class T, class Rows>
__global__ void __launch_bounds__(32 * kFlashWarps)
    flash_rows_forward_kernel(Rows rows, Source<T> qkv, Source<T> kv, Target<T> out, float* logsumexp) {
  REHEARSE_DYNAMIC_SHARED(float, keys);
  const FlashCall& f = rows.f;
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const values = keys + kFlashTile * width;
  float* const row = values + kFlashTile * width + warp * f.head_dim;
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z), kv_head = head / f.group;
  const int block_query = static_cast<int>(blockIdx.x) * kFlashWarps, query = block_query + warp;
  stage_row(row, qkv, f.query(batch, head) + query * f.qkv_stride(), query < f.seq, f.head_dim);
  const int seen_by = rows.seen_by(block_query);
  float maximum = -__builtin_huge_valf(), sum = 0, sums[kFlashColumns] = {};
  for (int first = 0; first < rows.keys(); first += kFlashTile) {
    if (rows.beyond(first, seen_by)) continue;
    __syncthreads();
    stage_rows(keys, kv, rows.key(batch, kv_head), rows.kv_stride(), first, rows.keys(), f.head_dim);
    stage_rows(values, kv, rows.value(batch, kv_head), rows.kv_stride(), first, rows.keys(), f.head_dim);
    __syncthreads();
    const int key = first + lane;
    const bool seen = rows.sees(query, key);
    const float score = seen ? dot(row, keys + lane * width, f.head_dim) * f.scale : -__builtin_huge_valf();
    const float now = fmaxf(maximum, flash_warp_max(score));
    if (now == -__builtin_huge_valf()) continue;  // nothing seen yet
    const float p = expf(score - now), fade = expf(maximum - now);
    maximum = now;
    sum = sum * fade + flash_warp_sum(p);
#pragma unroll
    for (int n = 0; n < kFlashColumns; ++n) sums[n] *= fade;
    add_rows(sums, seen && rows.keeps(batch, head, query, key) ? p : 0.0F, values, f.head_dim);
  }
  if (query >= f.seq || (rows.merge() && sum == 0)) return;
  const std::int64_t at = f.out(batch, head) + query * f.out_stride(), per_row = f.per_row(query, batch, head);
  const float here = maximum + logf(sum);
  if (!rows.merge()) {
    put_row(sums, f.drop.kept_scale / sum, out, at, f.head_dim);
    if (lane == 0) logsumexp[per_row] = here;
    return;
  }
  // out = (e^before out + e^here (sums / sum)) / (e^before + e^here)
  const float before = logsumexp[per_row], most = fmaxf(before, here);
  const float together = most + logf(expf(before - most) + expf(here - most));
  const float old = expf(before - together), fresh = expf(maximum - together) * f.drop.kept_scale;
#pragma unroll
  for (int n = 0; n < kFlashColumns; ++n)
    if (lane + 32 * n < f.head_dim) out.put(at + lane + 32 * n, out.get(at + lane + 32 * n) * old + sums[n] * fresh);
  __syncwarp();
  if (lane == 0) logsumexp[per_row] = together;
}

// dS of one element without the softmax scale, and the probability that multiplied the value.
struct FlashRowGradient {
  float score, kept;
};
template <class Rows>
__device__ FlashRowGradient flash_row_gradient(const Rows& rows, float score, float d_probability, float row_sum,
                                               float delta, int batch, int head, int query, int key) {
  if (!rows.sees(query, key)) return {0, 0};
  const float p = expf(score * rows.f.scale - row_sum), kept_scale = rows.f.drop.kept_scale;
  const bool keep = rows.keeps(batch, head, query, key);
  return {p * ((keep ? d_probability * kept_scale : 0.0F) - delta), keep ? p * kept_scale : 0.0F};
}
// rowsum(dO O) of one row, in every lane of the warp.
template <class T>
__device__ float flash_row_delta(const Source<T>& d_out, const Source<T>& out, std::int64_t at, bool there,
                                 int head_dim) {
  float delta = 0;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < head_dim && there; c += 32)
    delta += d_out.get(at + c) * out.get(at + c);
  return flash_warp_sum(delta);
}

template <class T, class Rows>
__global__ void __launch_bounds__(32 * kFlashWarps, 2)
    flash_rows_queries_kernel(Rows rows, Source<T> d_out, Source<T> qkv, Source<T> kv, Source<T> out,
                              const float* logsumexp, Target<T> d_query) {
  REHEARSE_DYNAMIC_SHARED(float, keys);
  const FlashCall& f = rows.f;
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const values = keys + kFlashTile * width;
  float* const row = values + kFlashTile * width + 2 * warp * f.head_dim;
  float* const d_row = row + f.head_dim;
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z), kv_head = head / f.group;
  const int block_query = static_cast<int>(blockIdx.x) * kFlashWarps, query = block_query + warp;
  const bool there = query < f.seq;
  const std::int64_t at_out = f.out(batch, head) + query * f.out_stride();
  stage_row(row, qkv, f.query(batch, head) + query * f.qkv_stride(), there, f.head_dim);
  stage_row(d_row, d_out, at_out, there, f.head_dim);
  const float delta = flash_row_delta(d_out, out, at_out, there, f.head_dim);
  const float row_sum = there ? logsumexp[f.per_row(query, batch, head)] : 0.0F;
  const int seen_by = rows.seen_by(block_query);
  float sums[kFlashColumns] = {};
  for (int first = 0; first < rows.keys(); first += kFlashTile) {
    if (rows.beyond(first, seen_by)) continue;
    __syncthreads();
    stage_rows(keys, kv, rows.key(batch, kv_head), rows.kv_stride(), first, rows.keys(), f.head_dim);
    stage_rows(values, kv, rows.value(batch, kv_head), rows.kv_stride(), first, rows.keys(), f.head_dim);
    __syncthreads();
    const FlashRowGradient g = flash_row_gradient(rows, dot(row, keys + lane * width, f.head_dim),
                                                  dot(d_row, values + lane * width, f.head_dim), row_sum, delta, batch,
                                                  head, query, first + lane);
    add_rows(sums, g.score, keys, f.head_dim);
  }
  if (!there) return;
  const std::int64_t at = rows.d_query(batch, head) + query * rows.d_query_stride();
#pragma unroll
  for (int n = 0; n < kFlashColumns; ++n) {
    const int column = lane + 32 * n;
    if (column < f.head_dim)
      d_query.put(at + column, sums[n] * f.scale + (rows.merge() ? d_query.get(at + column) : 0.0F));
  }
}

template <class T, class Rows>
__global__ void __launch_bounds__(32 * kFlashWarps, 2)
    flash_rows_keys_kernel(Rows rows, Source<T> d_out, Source<T> qkv, Source<T> kv, Source<T> out,
                           const float* logsumexp, Target<T> d_kv) {
  REHEARSE_DYNAMIC_SHARED(float, queries);
  __shared__ float deltas[kFlashTile], row_sums[kFlashTile];
  const FlashCall& f = rows.f;
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const gradients = queries + kFlashTile * width;
  float* const key_row = gradients + kFlashTile * width + 2 * warp * f.head_dim;
  float* const value_row = key_row + f.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z);
  const int block_key = static_cast<int>(blockIdx.x) * kFlashWarps, key = block_key + warp;
  const bool there = key < rows.keys();
  const std::int64_t at_key = rows.key(batch, kv_head) + key * rows.kv_stride(),
                     at_value = rows.value(batch, kv_head) + key * rows.kv_stride();
  stage_row(key_row, kv, at_key, there, f.head_dim);
  stage_row(value_row, kv, at_value, there, f.head_dim);
  const int seeing = rows.seeing(block_key);
  float d_key[kFlashColumns] = {}, d_value[kFlashColumns] = {};
  for (int head = kv_head * f.group; head < (kv_head + 1) * f.group; ++head) {
    for (int first = 0; first < f.seq; first += kFlashTile) {
      if (rows.before(first, seeing)) continue;
      __syncthreads();
      stage_rows(queries, qkv, f.query(batch, head), f.qkv_stride(), first, f.seq, f.head_dim);
      stage_rows(gradients, d_out, f.out(batch, head), f.out_stride(), first, f.seq, f.head_dim);
      for (int i = warp; i < kFlashTile; i += kFlashWarps) {
        const int query = first + i;
        const float delta =
            flash_row_delta(d_out, out, f.out(batch, head) + query * f.out_stride(), query < f.seq, f.head_dim);
        if (lane == 0) {
          deltas[i] = delta;
          row_sums[i] = query < f.seq ? logsumexp[f.per_row(query, batch, head)] : 0.0F;
        }
      }
      __syncthreads();
      const FlashRowGradient g = flash_row_gradient(rows, dot(key_row, queries + lane * width, f.head_dim),
                                                    dot(value_row, gradients + lane * width, f.head_dim),
                                                    row_sums[lane], deltas[lane], batch, head, first + lane, key);
      add_rows(d_key, g.score, queries, f.head_dim);
      add_rows(d_value, g.kept, gradients, f.head_dim);
    }
  }
  if (!there) return;
  put_row(d_key, f.scale, d_kv, at_key, f.head_dim);
  put_row(d_value, 1.0F, d_kv, at_value, f.head_dim);
}

inline dim3 flash_rows_grid(const FlashCall& f, int rows, int heads) {
  return dim3(static_cast<unsigned>((rows + kFlashWarps - 1) / kFlashWarps), static_cast<unsigned>(heads),
              static_cast<unsigned>(f.micro_batch));
}
inline std::size_t flash_rows_shared(const FlashCall& f, int rows_of_a_warp) {
  return sizeof(float) *
         static_cast<std::size_t>(2 * kFlashTile * (f.head_dim + 1) + rows_of_a_warp * kFlashWarps * f.head_dim);
}

// f.operator()<float>() if all is fp32, else for types told apart when the kernel runs.
template <class F>
void fp32_or_any(std::initializer_list<In> operands, F&& f) {
  bool fp32 = true;
  for (const In& o : operands) fp32 = fp32 && o.type == DType::f32;
  if (fp32) return f.template operator()<float>();
  f.template operator()<AnyType>();
}

template <class Rows>
void flash_rows_forward(const Rows& rows, In qkv, In kv, Out out, float* logsumexp, cudaStream_t stream) {
  fp32_or_any({qkv, kv, out}, [&]<class T>() {
    launch(flash_rows_forward_kernel<T, Rows>, flash_rows_grid(rows.f, rows.f.seq, rows.f.heads),
           dim3(32 * kFlashWarps), flash_rows_shared(rows.f, 1), stream, rows, Source<T>(qkv), Source<T>(kv),
           Target<T>(out), logsumexp);
  });
}

template <class Rows>
void flash_rows_backward(const Rows& rows, In d_out, In qkv, In kv, In out, const float* logsumexp, Out d_query,
                         Out d_kv, cudaStream_t stream) {
  fp32_or_any({d_out, qkv, kv, out, d_query, d_kv}, [&]<class T>() {
    const Source<T> from_d_out(d_out), from_qkv(qkv), from_kv(kv), from_out(out);
    launch(flash_rows_keys_kernel<T, Rows>, flash_rows_grid(rows.f, rows.keys(), rows.f.kv_heads),
           dim3(32 * kFlashWarps), flash_rows_shared(rows.f, 2), stream, rows, from_d_out, from_qkv, from_kv, from_out,
           logsumexp, Target<T>(d_kv));
    launch(flash_rows_queries_kernel<T, Rows>, flash_rows_grid(rows.f, rows.f.seq, rows.f.heads),
           dim3(32 * kFlashWarps), flash_rows_shared(rows.f, 2), stream, rows, from_d_out, from_qkv, from_kv, from_out,
           logsumexp, Target<T>(d_query));
  });
}

}  // namespace rehearse::kernels::cuda
