// Attention of a rank of a context group: of its own queries, in two chunks of the sequence, to the keys of one rank,
// or of all, which are an operand of their own. By multiply-adds in fp32, for every type: as in flash_plain.cu a warp
// has one query (forward, dQ) or one key (dK, dV) and goes over tiles of 32 of the other; what differs is which
// position of the sequence a row is. Tiles that a block sees nothing of are left out. Bytes they must move: queries and
// outputs once, keys and values once for every eight queries, from the second-level cache.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_rows.h"
#include "kernels/cuda/require.h"

namespace rehearse::kernels::cuda {
namespace {

struct ContextCall {
  FlashCall f;
  int ranks, rank, key_rank, keys, chunk;  // keys: rows of them; key_rank -1: of all ranks, in their order
  bool merge;

  ContextCall(const AttentionShape& s, const ContextPart& p, const DropoutSite& site)
      : f(s, site),
        ranks(static_cast<int>(p.ranks)),
        rank(static_cast<int>(p.rank)),
        key_rank(static_cast<int>(p.key_rank)),
        keys((p.key_rank < 0 ? ranks : 1) * f.seq),
        chunk(f.seq / 2),
        merge(p.merge) {}

  // Of a rank's row: the rank holds the chunks r and 2 * ranks - 1 - r.
  __device__ int held(int of, int row) const {
    return row < chunk ? of * chunk + row : (2 * ranks - 1 - of) * chunk + row - chunk;
  }
  __device__ int query_position(int row) const { return held(rank, row); }
  __device__ int key_position(int row) const {
    return key_rank < 0 ? held(row / f.seq, row % f.seq) : held(key_rank, row);
  }
  __device__ bool sees(int query, int key) const {
    return query < f.seq && key < keys && (!f.causal || key_position(key) <= query_position(query));
  }
  // The last position of `n` queries from `first` on, and the first one of so many keys.
  __device__ int last_query(int first, int n) const {
    int last = -1;
    for (int i = first; i < first + n && i < f.seq; ++i) {
      const int position = query_position(i);
      last = position > last ? position : last;
    }
    return last;
  }
  // The same of keys, where a tile is no longer than a chunk: it has parts of at most two.
  __device__ int first_key(int first, int n) const {
    if (chunk < n) return 0;
    const int end = first + n < keys ? first + n : keys, own = key_position(first);
    const int next = (first / chunk + 1) * chunk;
    if (next >= end) return own;
    const int other = key_position(next);
    return other < own ? other : own;
  }
  __device__ int first_key_of_few(int first, int n) const {
    int least = 0x7FFFFFFF;
    for (int i = first; i < first + n && i < keys; ++i) {
      const int position = key_position(i);
      least = position < least ? position : least;
    }
    return least;
  }
  __device__ int last_query_of_tile(int first, int n) const {
    if (chunk < n) return 0x7FFFFFFF;
    const int end = first + n < f.seq ? first + n : f.seq, own = query_position(end - 1);
    const int next = (first / chunk + 1) * chunk;
    if (next >= end) return own;
    const int other = query_position(next - 1);
    return other > own ? other : own;
  }
  // Of kv [keys, micro_batch, kv_heads, 2, head_dim].
  __host__ __device__ std::int64_t kv_stride() const {
    return static_cast<std::int64_t>(f.micro_batch) * f.kv_heads * 2 * f.head_dim;
  }
  __device__ std::int64_t key(int batch, int kv_head) const {
    return (static_cast<std::int64_t>(batch) * f.kv_heads + kv_head) * 2 * f.head_dim;
  }
  __device__ std::int64_t value(int batch, int kv_head) const { return key(batch, kv_head) + f.head_dim; }

  __device__ bool keeps(int batch, int head, int query, int key_row) const {
    const Dropping& d = f.drop;
    if (!d.step) return true;
    const std::int64_t whole = static_cast<std::int64_t>(f.seq) * ranks,
                       column = (d.first_head + head) * whole + key_position(key_row);
    const unsigned kept = kept_of_group(mix_key(mix_key(d.seed, static_cast<std::uint64_t>(d.step->step)), d.site),
                                        static_cast<std::uint64_t>(d.step->first_sequence + d.first_sequence + batch),
                                        query_position(query), column / kDropoutGroup, d.threshold);
    return (kept >> (column % kDropoutGroup) & 1U) != 0;
  }
};

template <class T>
__global__ void __launch_bounds__(32 * kFlashWarps)
    context_forward_kernel(ContextCall c, Source<T> qkv, Source<T> kv, Target<T> out, float* logsumexp) {
  REHEARSE_DYNAMIC_SHARED(float, keys);
  const FlashCall& f = c.f;
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const values = keys + kFlashTile * width;
  float* const row = values + kFlashTile * width + warp * f.head_dim;
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z), kv_head = head / f.group;
  const int block_query = static_cast<int>(blockIdx.x) * kFlashWarps, query = block_query + warp;
  stage_row(row, qkv, f.query(batch, head) + query * f.qkv_stride(), query < f.seq, f.head_dim);
  const int last = f.causal ? c.last_query(block_query, kFlashWarps) : 0x7FFFFFFF;
  float maximum = -__builtin_huge_valf(), sum = 0, sums[kFlashColumns] = {};
  for (int first = 0; first < c.keys; first += kFlashTile) {
    if (c.first_key(first, kFlashTile) > last) continue;
    __syncthreads();
    stage_rows(keys, kv, c.key(batch, kv_head), c.kv_stride(), first, c.keys, f.head_dim);
    stage_rows(values, kv, c.value(batch, kv_head), c.kv_stride(), first, c.keys, f.head_dim);
    __syncthreads();
    const int key = first + lane;
    const bool seen = c.sees(query, key);
    const float score = seen ? dot(row, keys + lane * width, f.head_dim) * f.scale : -__builtin_huge_valf();
    const float now = fmaxf(maximum, flash_warp_max(score));
    if (now == -__builtin_huge_valf()) continue;  // nothing seen yet
    const float p = expf(score - now), fade = expf(maximum - now);
    maximum = now;
    sum = sum * fade + flash_warp_sum(p);
#pragma unroll
    for (int n = 0; n < kFlashColumns; ++n) sums[n] *= fade;
    add_rows(sums, seen && c.keeps(batch, head, query, key) ? p : 0.0F, values, f.head_dim);
  }
  if (query >= f.seq || (c.merge && sum == 0)) return;
  const std::int64_t at = f.out(batch, head) + query * f.out_stride(), per_row = f.per_row(query, batch, head);
  const float here = maximum + logf(sum);
  if (!c.merge) {
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
struct ContextGradient {
  float score, kept;
};
__device__ ContextGradient context_gradient(const ContextCall& c, float score, float d_probability, float row_sum,
                                            float delta, int batch, int head, int query, int key) {
  if (!c.sees(query, key)) return {0, 0};
  const float p = expf(score * c.f.scale - row_sum);
  const bool keep = c.keeps(batch, head, query, key);
  return {p * ((keep ? d_probability * c.f.drop.kept_scale : 0.0F) - delta), keep ? p * c.f.drop.kept_scale : 0.0F};
}

template <class T>
__global__ void __launch_bounds__(32 * kFlashWarps, 2)
    context_queries_kernel(ContextCall c, Source<T> d_out, Source<T> qkv, Source<T> kv, Source<T> out,
                           const float* logsumexp, Target<T> d_q) {
  REHEARSE_DYNAMIC_SHARED(float, keys);
  const FlashCall& f = c.f;
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const values = keys + kFlashTile * width;
  float* const row = values + kFlashTile * width + 2 * warp * f.head_dim;
  float* const d_row = row + f.head_dim;
  const int head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z), kv_head = head / f.group;
  const int block_query = static_cast<int>(blockIdx.x) * kFlashWarps, query = block_query + warp;
  const bool there = query < f.seq;
  const std::int64_t at = f.out(batch, head) + query * f.out_stride();  // of d_q too
  stage_row(row, qkv, f.query(batch, head) + query * f.qkv_stride(), there, f.head_dim);
  stage_row(d_row, d_out, at, there, f.head_dim);
  float delta = 0;
  for (int n = lane; n < f.head_dim && there; n += 32) delta += d_out.get(at + n) * out.get(at + n);
  delta = flash_warp_sum(delta);
  const float row_sum = there ? logsumexp[f.per_row(query, batch, head)] : 0.0F;
  const int last = f.causal ? c.last_query(block_query, kFlashWarps) : 0x7FFFFFFF;
  float sums[kFlashColumns] = {};
  for (int first = 0; first < c.keys; first += kFlashTile) {
    if (c.first_key(first, kFlashTile) > last) continue;
    __syncthreads();
    stage_rows(keys, kv, c.key(batch, kv_head), c.kv_stride(), first, c.keys, f.head_dim);
    stage_rows(values, kv, c.value(batch, kv_head), c.kv_stride(), first, c.keys, f.head_dim);
    __syncthreads();
    const ContextGradient g =
        context_gradient(c, dot(row, keys + lane * width, f.head_dim), dot(d_row, values + lane * width, f.head_dim),
                         row_sum, delta, batch, head, query, first + lane);
    add_rows(sums, g.score, keys, f.head_dim);
  }
  if (!there) return;
#pragma unroll
  for (int n = 0; n < kFlashColumns; ++n) {
    const int column = lane + 32 * n;
    if (column < f.head_dim) d_q.put(at + column, sums[n] * f.scale + (c.merge ? d_q.get(at + column) : 0.0F));
  }
}

template <class T>
__global__ void __launch_bounds__(32 * kFlashWarps, 2)
    context_keys_kernel(ContextCall c, Source<T> d_out, Source<T> qkv, Source<T> kv, Source<T> out,
                        const float* logsumexp, Target<T> d_kv) {
  REHEARSE_DYNAMIC_SHARED(float, queries);
  __shared__ float deltas[kFlashTile], row_sums[kFlashTile];
  const FlashCall& f = c.f;
  const int width = f.head_dim + 1, warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  float* const gradients = queries + kFlashTile * width;
  float* const key_row = gradients + kFlashTile * width + 2 * warp * f.head_dim;
  float* const value_row = key_row + f.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y), batch = static_cast<int>(blockIdx.z);
  const int block_key = static_cast<int>(blockIdx.x) * kFlashWarps, key = block_key + warp;
  stage_row(key_row, kv, c.key(batch, kv_head) + key * c.kv_stride(), key < c.keys, f.head_dim);
  stage_row(value_row, kv, c.value(batch, kv_head) + key * c.kv_stride(), key < c.keys, f.head_dim);
  const int least = f.causal ? c.first_key_of_few(block_key, kFlashWarps) : 0;
  float d_key[kFlashColumns] = {}, d_value[kFlashColumns] = {};
  for (int head = kv_head * f.group; head < (kv_head + 1) * f.group; ++head) {
    for (int first = 0; first < f.seq; first += kFlashTile) {
      if (f.causal && c.last_query_of_tile(first, kFlashTile) < least) continue;
      __syncthreads();
      stage_rows(queries, qkv, f.query(batch, head), f.qkv_stride(), first, f.seq, f.head_dim);
      stage_rows(gradients, d_out, f.out(batch, head), f.out_stride(), first, f.seq, f.head_dim);
      for (int i = warp; i < kFlashTile; i += kFlashWarps) {
        const int query = first + i;
        const std::int64_t at = f.out(batch, head) + query * f.out_stride();
        float delta = 0;
        for (int n = lane; n < f.head_dim && query < f.seq; n += 32) delta += d_out.get(at + n) * out.get(at + n);
        delta = flash_warp_sum(delta);
        if (lane == 0) {
          deltas[i] = delta;
          row_sums[i] = query < f.seq ? logsumexp[f.per_row(query, batch, head)] : 0.0F;
        }
      }
      __syncthreads();
      const ContextGradient g = context_gradient(c, dot(key_row, queries + lane * width, f.head_dim),
                                                 dot(value_row, gradients + lane * width, f.head_dim), row_sums[lane],
                                                 deltas[lane], batch, head, first + lane, key);
      add_rows(d_key, g.score, queries, f.head_dim);
      add_rows(d_value, g.kept, gradients, f.head_dim);
    }
  }
  if (key >= c.keys) return;
  put_row(d_key, f.scale, d_kv, c.key(batch, kv_head) + key * c.kv_stride(), f.head_dim);
  put_row(d_value, 1.0F, d_kv, c.value(batch, kv_head) + key * c.kv_stride(), f.head_dim);
}

dim3 context_grid(const FlashCall& f, int rows, int heads) {
  return dim3(static_cast<unsigned>((rows + kFlashWarps - 1) / kFlashWarps), static_cast<unsigned>(heads),
              static_cast<unsigned>(f.micro_batch));
}
std::size_t context_shared(const FlashCall& f, int rows_of_a_warp) {
  return sizeof(float) *
         static_cast<std::size_t>(2 * kFlashTile * (f.head_dim + 1) + rows_of_a_warp * kFlashWarps * f.head_dim);
}

void check_context(const AttentionShape& s) {
  REHEARSE_REQUIRE(s.values() == s.head_dim && s.head_dim <= kFlashMaxHeadDim && s.window == 0 &&
                       s.document_starts == nullptr && s.softcap == 0 && s.score_scale == 0 && s.seq % 2 == 0,
                   "attention over a context group that has no kernel on GPUs");
}

}  // namespace

void CudaDevice::context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In qkv,
                                 In kv, Out out, float* logsumexp) {
  check_context(s);
  check_dropout(dropout);
  const ContextCall c(s, part, dropout);
  fp32_or_any({qkv, kv, out}, [&]<class T>() {
    launch(context_forward_kernel<T>, context_grid(c.f, c.f.seq, c.f.heads), dim3(32 * kFlashWarps),
           context_shared(c.f, 1), stream_.get(), c, Source<T>(qkv), Source<T>(kv), Target<T>(out), logsumexp);
  });
}

void CudaDevice::context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout,
                                  In d_out, In qkv, In kv, In out, const float* logsumexp, Out d_q, Out d_kv) {
  check_context(s);
  check_dropout(dropout);
  const ContextCall c(s, part, dropout);
  fp32_or_any({d_out, qkv, kv, out, d_q, d_kv}, [&]<class T>() {
    launch(context_keys_kernel<T>, context_grid(c.f, c.keys, c.f.kv_heads), dim3(32 * kFlashWarps),
           context_shared(c.f, 2), stream_.get(), c, Source<T>(d_out), Source<T>(qkv), Source<T>(kv), Source<T>(out),
           logsumexp, Target<T>(d_kv));
    launch(context_queries_kernel<T>, context_grid(c.f, c.f.seq, c.f.heads), dim3(32 * kFlashWarps),
           context_shared(c.f, 2), stream_.get(), c, Source<T>(d_out), Source<T>(qkv), Source<T>(kv), Source<T>(out),
           logsumexp, Target<T>(d_q));
  });
}

}  // namespace rehearse::kernels::cuda
