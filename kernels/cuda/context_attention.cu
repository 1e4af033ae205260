// Attention of a rank of a context group: of its own queries, in two chunks of the sequence, to the keys of one rank,
// or of all, which are an operand of their own. By multiply-adds in fp32, for every type, by the kernels of
// flash_rows.h, which here are told which position of the sequence a row is. Tiles that a block sees nothing of are
// left out. Bytes they must move: queries and outputs once, keys and values once for every eight queries, from the
// second-level cache.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_rows.h"
#include "kernels/cuda/require.h"

namespace rehearse::kernels::cuda {
namespace {

struct ContextRows {
  FlashCall f;
  int ranks, rank, key_rank, all_keys, chunk;  // key_rank -1: of all ranks, in their order
  bool merges;

  ContextRows(const AttentionShape& s, const ContextPart& p, const DropoutSite& site)
      : f(s, site),
        ranks(static_cast<int>(p.ranks)),
        rank(static_cast<int>(p.rank)),
        key_rank(static_cast<int>(p.key_rank)),
        all_keys((p.key_rank < 0 ? ranks : 1) * f.seq),
        chunk(f.seq / 2),
        merges(p.merge) {}

  __host__ __device__ int keys() const { return all_keys; }
  __device__ bool merge() const { return merges; }

  // Of a rank's row: the rank holds the chunks r and 2 * ranks - 1 - r.
  __device__ int held(int of, int row) const {
    return row < chunk ? of * chunk + row : (2 * ranks - 1 - of) * chunk + row - chunk;
  }
  __device__ int query_position(int row) const { return held(rank, row); }
  __device__ int key_position(int row) const {
    return key_rank < 0 ? held(row / f.seq, row % f.seq) : held(key_rank, row);
  }
  __device__ bool sees(int query, int key) const {
    return query < f.seq && key < all_keys && (!f.causal || key_position(key) <= query_position(query));
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
    const int end = first + n < all_keys ? first + n : all_keys, own = key_position(first);
    const int next = (first / chunk + 1) * chunk;
    if (next >= end) return own;
    const int other = key_position(next);
    return other < own ? other : own;
  }
  __device__ int first_key_of_few(int first, int n) const {
    int least = 0x7FFFFFFF;
    for (int i = first; i < first + n && i < all_keys; ++i) {
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
  __device__ int seen_by(int query) const { return f.causal ? last_query(query, kFlashWarps) : 0x7FFFFFFF; }
  __device__ bool beyond(int first, int seen_by) const { return first_key(first, kFlashTile) > seen_by; }
  __device__ int seeing(int key) const { return f.causal ? first_key_of_few(key, kFlashWarps) : 0; }
  __device__ bool before(int first, int seeing) const {
    return f.causal && last_query_of_tile(first, kFlashTile) < seeing;
  }
  // Of kv [keys, micro_batch, kv_heads, 2, head_dim].
  __device__ std::int64_t kv_stride() const {
    return static_cast<std::int64_t>(f.micro_batch) * f.kv_heads * 2 * f.head_dim;
  }
  __device__ std::int64_t key(int batch, int kv_head) const {
    return (static_cast<std::int64_t>(batch) * f.kv_heads + kv_head) * 2 * f.head_dim;
  }
  __device__ std::int64_t value(int batch, int kv_head) const { return key(batch, kv_head) + f.head_dim; }
  // Of dq [tokens, heads * head_dim].
  __device__ std::int64_t d_query(int batch, int head) const { return f.out(batch, head); }
  __device__ std::int64_t d_query_stride() const { return f.out_stride(); }

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
  flash_rows_forward(ContextRows(s, part, dropout), qkv, kv, out, logsumexp, stream_.get());
}

void CudaDevice::context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout,
                                  In d_out, In qkv, In kv, In out, const float* logsumexp, Out d_q, Out d_kv) {
  check_context(s);
  check_dropout(dropout);
  flash_rows_backward(ContextRows(s, part, dropout), d_out, qkv, kv, out, logsumexp, d_q, d_kv, stream_.get());
}

}  // namespace rehearse::kernels::cuda
