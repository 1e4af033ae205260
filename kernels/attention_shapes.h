// Shapes of attention as Device's calls have them: packed heads, latent attention's, norms of heads, and parts of a
// sequence.
#pragma once

#include <cmath>
#include <cstdint>

#include "sim/base/alibi.h"
#include "sim/base/rotation.h"

namespace rehearse::kernels {

struct AttentionShape {
  std::int64_t micro_batch = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  bool causal = true;
  std::int64_t value_dim = 0;   // columns of a head's value; 0: head_dim
  std::int64_t rotary_dim = 0;  // rope: columns of a head that turn; 0: head_dim
  // Causal, of whole sequences: query i sees keys i - window < j <= i; 0: all before it. Not on GPUs yet.
  std::int64_t window = 0;
  // Causal, of sequences that are packed of documents: int32 [micro_batch, tokens of a sequence], for each token the
  // first one of its document, before which it sees no key; nullptr: none. Not on GPUs yet.
  const std::int32_t* document_starts = nullptr;
  std::int64_t document_row = 0;  // tokens of a sequence in document_starts
  // Unfused parts: the queries see all of so many keys of another sequence, whose operand is kv, and are an operand of
  // their own (sim/program/op.h, Attention); 0: packed qkv.
  std::int64_t keys = 0;
  bool unscaled = false;  // softmax of the scores as they are
  // Of a bias by distance: its buckets and the distance from which on all have the last (sim/base/relative_position.h).
  std::int64_t bias_buckets = 0, bias_distance = 0;
  // Scaled scores x become softcap * tanh(x / softcap); 0: they stay. Not on GPUs yet, nor are the two after it.
  double softcap = 0;
  std::int64_t score_scale = 0;  // scores are divided by its square root; 0: head_dim
  Rotation rotation = {};        // rope
  // ALiBi (sim/base/alibi.h): heads of the model, and which of them our first is; 0: none. Not on GPUs yet.
  std::int64_t alibi_heads = 0, first_head = 0;

  double scale() const {
    return unscaled ? 1 : 1 / std::sqrt(static_cast<double>(score_scale > 0 ? score_scale : head_dim));
  }
  // The first key that the query at `position` of sequence `batch` sees.
  std::int64_t first_seen(std::int64_t batch, std::int64_t position) const {
    const std::int64_t first = window > 0 && position >= window ? position - window + 1 : 0;
    if (document_starts == nullptr) return first;
    const std::int64_t start = document_starts[batch * document_row + position];
    return start > first ? start : first;
  }
  float slope(std::int64_t head) const { return static_cast<float>(alibi_slope(first_head + head, alibi_heads)); }
  std::int64_t compared() const { return keys > 0 ? keys : seq; }
  std::int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  std::int64_t rotated() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
};

// Of a sequence that is decoded: its keys and values, [tokens, kv_heads, head_dim + value_dim], those of the token that
// asks the last ones.
struct CachedSequence {
  const float* keys_values = nullptr;
  std::int64_t tokens = 0;  // 0: nothing is asked
};

// RMSNorm of each head's query and key in packed qkv (sim/program/op.h, HeadNorm).
struct HeadNormShape {
  std::int64_t rows = 0, kv_heads = 0, group = 0, head_dim = 0;  // group: queries of a key
  double eps = 1e-5;
  bool zero_centered = false;  // gammas are what is added to 1

  std::int64_t heads() const { return rows * kv_heads * (group + 1); }
  std::int64_t packed() const { return rows * kv_heads * (group + 2) * head_dim; }
};

// Between the products of latent attention, q [rows, heads, nope + rope], kv [rows, heads, nope + value] and k_rope
// [rows, rope], and its heads, qkv [rows, heads, 2 (nope + rope) + value]: a head's query, key and value.
struct LatentShape {
  std::int64_t micro_batch = 0, heads = 0, seq = 0, nope = 0, rope = 0, value = 0;
  // Of yarn's angles what is rotated keeps its length, and all of a query is multiplied by the square of the magnitude,
  // as scores are in DeepSeek's models (transformers' modeling_deepseek_v3.py; Megatron-Core's
  // multi_latent_attention.py, with mscale = mscale_all_dim = 1).
  Rotation rotation = {};

  std::int64_t rows() const { return micro_batch * seq; }
  std::int64_t query() const { return nope + rope; }
  std::int64_t packed() const { return 2 * query() + value; }
};

// Attention of some tokens of a sequence to the keys of some, where rank r of `ranks` holds the chunks r and 2 * ranks
// - 1
// - r of 2 * ranks equal ones. AttentionShape::seq counts the tokens of one rank.
struct ContextPart {
  std::int64_t ranks = 1, rank = 0;  // whose queries
  std::int64_t key_rank = -1;        // whose keys; -1: all ranks', in their order
  bool merge = false;                // out and logsumexp, or d_q, hold what other keys gave: adds to it
  // Where the sequence is a document of a row of `row` tokens, from its token `first` on: dropout is drawn by places
  // in the row. CPU only. row 0: the sequence is a row.
  std::int64_t first = 0, row = 0;
};

}  // namespace rehearse::kernels
