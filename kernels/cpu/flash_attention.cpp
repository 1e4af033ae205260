// Attention in tiles with an online softmax (Dao et al. 2022, arXiv 2205.14135; Dao 2023, arXiv 2307.08691): no more
// than a kQueries x kKeys tile of the probabilities exists at a time. The backward pass recomputes P from logsumexp and
// uses rowsum(P dP) = rowsum(dO O), which holds with dropout too. Forward tiles of queries are independent; in the
// backward pass a thread owns a key head and the query heads it serves, so gradients add in a fixed order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_view.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/dropout_row.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {
namespace {

// Queries and keys of a tile; the tile that a thread keeps (queries forward, keys backward) is the smaller, as what it
// computes above the diagonal is wasted.
constexpr std::int64_t kQueries = 64, kKeys = 128, kQueriesBackward = 128, kKeysBackward = 64;

struct Tile {
  std::int64_t batch, head, first_query, queries, first_key, keys;

  // Keys of the tile that query `i` of the tile sees.
  std::int64_t visible(bool causal, std::int64_t i) const {
    return causal ? std::clamp<std::int64_t>(first_query + i - first_key + 1, 0, keys) : keys;
  }
};

// What both passes hold of the call.
struct Flash {
  const AttentionShape& s;
  const DropoutSite& site;
  const float* qkv;
  AttentionView view;
  DropoutRow drop;
  float scale;

  Flash(const AttentionShape& shape, const DropoutSite& dropout, const float* packed)
      : s(shape),
        site(dropout),
        qkv(packed),
        view(shape),
        drop(dropout),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)))) {}

  Operand query(const Tile& t) const {
    return {qkv + view.query(t.batch, t.head) + t.first_query * view.qkv_stride, view.qkv_stride};
  }
  Operand key(const Tile& t) const {
    return {qkv + view.key(t.batch, t.head) + t.first_key * view.qkv_stride, view.qkv_stride};
  }
  Operand value(const Tile& t) const {
    return {qkv + view.value(t.batch, t.head) + t.first_key * view.qkv_stride, view.qkv_stride};
  }

  // body(offset, count, numbers) over the first n keys of row i of a tile.
  template <class Body>
  void over_numbers(const Tile& t, std::int64_t i, std::int64_t n, const Body& body) const {
    DropoutRow::pieces(drop.key, drop.first_sequence + t.batch, site.first_position + t.first_query + i,
                       attention_column(site.first_head + t.head, s.seq, t.first_key), n, body);
  }

  void forward_queries(Tile t, float* scratch, float* out, float* logsumexp) const;
  void softmax_step(const Tile& t, float* scores, float* acc, float* maxima, float* sums) const;
  void backward_keys(Tile t, float* scratch, const float* d_out, const float* logsumexp, const float* delta,
                     float* d_qkv) const;
  void backward_scores(const Tile& t, const float* logsumexp, const float* delta, float* p, float* d_p) const;
};

Operand transposed(Operand o) {
  return {o.data, o.stride, true};
}

// One tile of scores becomes unnormalised probabilities against the running maximum; what was accumulated before is
// rescaled to it.
void Flash::softmax_step(const Tile& t, float* scores, float* acc, float* maxima, float* sums) const {
  for (std::int64_t i = 0; i < t.queries; ++i) {
    float* row = scores + i * kKeys;
    const std::int64_t n = t.visible(s.causal, i);
    std::fill(row + n, row + t.keys, 0.0f);
    if (n == 0) continue;
    const float before = maxima[i], now = max(before, max_of(n, row) * scale);
    const float total = sum_terms(n, [=, factor = scale](std::int64_t k, auto tag) {
      const auto e = exp(get(row + k, tag) * factor - now);
      put(row + k, e);
      return e;
    });
    const float fade = exp(before - now);
    maxima[i] = now;
    sums[i] = sums[i] * fade + total;
    if (fade != 1) {
      for (std::int64_t c = 0; c < s.head_dim; ++c) acc[i * s.head_dim + c] *= fade;
    }
    if (site.probability > 0) {
      over_numbers(t, i, n, [&](std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
        float* p = row + offset;
        drop.each(count, numbers, nullptr, [=, factor = drop.kept_scale](std::int64_t k, auto tag, auto keep) {
          put(p + k, kept(get(p + k, tag) * factor, keep));
        });
      });
    }
  }
}

void Flash::forward_queries(Tile t, float* scratch, float* out, float* logsumexp) const {
  float *scores = scratch, *acc = scores + kQueries * kKeys, *maxima = acc + kQueries * s.head_dim,
        *sums = maxima + kQueries;
  std::fill_n(acc, t.queries * s.head_dim, 0.0f);
  std::fill_n(maxima, t.queries, -std::numeric_limits<float>::infinity());
  std::fill_n(sums, t.queries, 0.0f);
  const std::int64_t keys = s.causal ? t.first_query + t.queries : s.seq;
  for (t.first_key = 0; t.first_key < keys; t.first_key += kKeys) {
    t.keys = std::min(kKeys, keys - t.first_key);
    multiply(t.queries, t.keys, s.head_dim, query(t), transposed(key(t)), false, scores, kKeys);
    softmax_step(t, scores, acc, maxima, sums);
    multiply(t.queries, s.head_dim, t.keys, {scores, kKeys}, value(t), true, acc, s.head_dim);
  }
  for (std::int64_t i = 0; i < t.queries; ++i) {
    float* y = out + view.out(t.batch, t.head) + (t.first_query + i) * view.out_stride;
    const float inverse = 1 / sums[i];
    for (std::int64_t c = 0; c < s.head_dim; ++c) y[c] = acc[i * s.head_dim + c] * inverse;
    logsumexp[view.per_row(t.first_query + i, t.batch, t.head)] = maxima[i] + std::log(sums[i]);
  }
}

// Scores become the (dropped) probabilities that multiplied V; dO V^T becomes the gradient of the unscaled scores.
void Flash::backward_scores(const Tile& t, const float* logsumexp, const float* delta, float* p, float* d_p) const {
  for (std::int64_t i = 0; i < t.queries; ++i) {
    float* prob = p + i * kKeysBackward;
    float* grad = d_p + i * kKeysBackward;
    const std::int64_t n = t.visible(s.causal, i);
    const float offset = logsumexp[view.per_row(t.first_query + i, t.batch, t.head)];
    const float mean = delta[t.first_query + i];
    if (site.probability > 0) {
      over_numbers(t, i, n, [&](std::int64_t first, std::int64_t count, const std::uint16_t* numbers) {
        drop.each(count, numbers, nullptr, [&](std::int64_t k, auto tag, auto keep) {
          const auto probability = exp(get(prob + first + k, tag) * scale - offset);
          const auto d = kept(get(grad + first + k, tag) * drop.kept_scale, keep);
          put(grad + first + k, probability * (d - mean) * scale);
          put(prob + first + k, kept(probability * drop.kept_scale, keep));
        });
      });
    } else {
      each(0, n, [&](std::int64_t k, auto tag) {
        const auto probability = exp(get(prob + k, tag) * scale - offset);
        put(grad + k, probability * (get(grad + k, tag) - mean) * scale);
        put(prob + k, probability);
      });
    }
    std::fill(prob + n, prob + t.keys, 0.0f);
    std::fill(grad + n, grad + t.keys, 0.0f);
  }
}

// The gradients that a tile of keys gives and gets, from all queries of one head. t.head's queries in d_qkv are added
// to; its key and value too, unless this is the first head of the group.
void Flash::backward_keys(Tile t, float* scratch, const float* d_out, const float* logsumexp, const float* delta,
                          float* d_qkv) const {
  float *p = scratch, *d_p = p + kQueriesBackward * kKeysBackward;
  const std::int64_t at_keys = t.first_key * view.qkv_stride;
  float* d_key = d_qkv + view.key(t.batch, t.head) + at_keys;
  float* d_value = d_qkv + view.value(t.batch, t.head) + at_keys;
  bool add = t.head % view.group > 0;
  for (t.first_query = s.causal ? t.first_key : 0; t.first_query < s.seq; t.first_query += kQueriesBackward) {
    t.queries = std::min(kQueriesBackward, s.seq - t.first_query);
    const Operand grad = {d_out + view.out(t.batch, t.head) + t.first_query * view.out_stride, view.out_stride};
    multiply(t.queries, t.keys, s.head_dim, query(t), transposed(key(t)), false, p, kKeysBackward);
    multiply(t.queries, t.keys, s.head_dim, grad, transposed(value(t)), false, d_p, kKeysBackward);
    backward_scores(t, logsumexp, delta, p, d_p);
    multiply(t.keys, s.head_dim, t.queries, {p, kKeysBackward, true}, grad, add, d_value, view.qkv_stride);
    multiply(t.keys, s.head_dim, t.queries, {d_p, kKeysBackward, true}, query(t), add, d_key, view.qkv_stride);
    multiply(t.queries, s.head_dim, t.keys, {d_p, kKeysBackward}, key(t), t.first_key > 0,
             d_qkv + view.query(t.batch, t.head) + t.first_query * view.qkv_stride, view.qkv_stride);
    add = true;
  }
}

}  // namespace

void CpuKernels::flash_forward(const AttentionShape& s, const DropoutSite& site, const float* qkv, float* out,
                               float* logsumexp) {
  const Flash flash(s, site, qkv);
  const std::int64_t tiles = (s.seq + kQueries - 1) / kQueries;
  pool_.ranges(s.micro_batch * s.heads * tiles, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* memory = scratch(worker, kQueries * (kKeys + s.head_dim + 2));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % tiles * kQueries, head = i / tiles;
      flash.forward_queries({head / s.heads, head % s.heads, first, std::min(kQueries, s.seq - first), 0, 0}, memory,
                            out, logsumexp);
    }
  });
}

void CpuKernels::flash_backward(const AttentionShape& s, const DropoutSite& site, const float* d_out, const float* qkv,
                                const float* out, const float* logsumexp, float* d_qkv) {
  const Flash flash(s, site, qkv);
  const AttentionView& view = flash.view;
  pool_.ranges(s.micro_batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* memory = scratch(worker, 2 * kQueriesBackward * kKeysBackward + s.seq);
    float* delta = memory + 2 * kQueriesBackward * kKeysBackward;
    for (std::int64_t i = begin * view.group; i < end * view.group; ++i) {
      const std::int64_t batch = i / s.heads, head = i % s.heads;
      for (std::int64_t t = 0; t < s.seq; ++t) {
        const std::int64_t at = view.out(batch, head) + t * view.out_stride;
        delta[t] = dot(s.head_dim, d_out + at, out + at);
      }
      for (std::int64_t key = 0; key < s.seq; key += kKeysBackward) {
        flash.backward_keys({batch, head, 0, 0, key, std::min(kKeysBackward, s.seq - key)}, memory, d_out, logsumexp,
                            delta, d_qkv);
      }
    }
  });
}

}  // namespace rehearse::kernels::cpu
