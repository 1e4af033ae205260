// Flash attention by multiply-adds in fp32, for fp32 and for what the matrix units do not take (odd widths, unaligned
// or mixed operands), by the kernels of flash_rows.h. Same passes as the tiled kernels, but rowsum(dO O) is computed
// where it is needed. See flash.h.
#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_rows.h"

namespace rehearse::kernels::cuda {
namespace {

// Queries, keys and values of whole sequences in one operand, in order.
struct WholeRows {
  FlashCall f;

  __host__ __device__ int keys() const { return f.seq; }
  __device__ bool merge() const { return false; }
  __device__ std::int64_t key(int batch, int kv_head) const { return f.key(batch, kv_head); }
  __device__ std::int64_t value(int batch, int kv_head) const { return f.value(batch, kv_head); }
  __device__ std::int64_t kv_stride() const { return f.qkv_stride(); }
  __device__ std::int64_t d_query(int batch, int head) const { return f.query(batch, head); }
  __device__ std::int64_t d_query_stride() const { return f.qkv_stride(); }
  __device__ bool sees(int query, int key) const { return query < f.seq && key < f.seq && (!f.causal || key <= query); }
  __device__ int seen_by(int query) const { return f.causal ? query + kFlashWarps : f.seq; }
  __device__ bool beyond(int first, int seen_by) const { return first >= seen_by; }
  __device__ int seeing(int key) const { return f.causal ? key : 0; }
  __device__ bool before(int first, int seeing) const { return first + kFlashTile <= seeing; }
  __device__ bool keeps(int batch, int head, int query, int key) const {
    const Dropping& d = f.drop;
    if (!d.step) return true;
    const std::int64_t column = (d.first_head + head) * f.seq + key;
    const unsigned kept = kept_of_group(mix_key(mix_key(d.seed, static_cast<std::uint64_t>(d.step->step)), d.site),
                                        static_cast<std::uint64_t>(d.step->first_sequence + d.first_sequence + batch),
                                        d.first_position + query, column / kDropoutGroup, d.threshold);
    return (kept >> (column % kDropoutGroup) & 1U) != 0;
  }
};

}  // namespace

void flash_forward_plain(const FlashCall& f, In qkv, Out out, float* logsumexp, cudaStream_t stream) {
  flash_rows_forward(WholeRows{f}, qkv, qkv, out, logsumexp, stream);
}

void flash_backward_plain(const FlashCall& f, In d_out, In qkv, In out, const float* logsumexp, Out d_qkv,
                          cudaStream_t stream) {
  flash_rows_backward(WholeRows{f}, d_out, qkv, qkv, out, logsumexp, d_qkv, d_qkv, stream);
}

}  // namespace rehearse::kernels::cuda
