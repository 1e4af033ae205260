// Attention in separate kernels, as software before flash attention ran it: scores S = Q K^T, probabilities P =
// softmax(S / sqrt(head_dim)) under the causal mask, D = dropout(P), out = D V, and their gradients. Above the
// diagonal, and before a window or a document, P, D and their gradients are zero and masks are not drawn. A sequence's
// heads are split over the threads. Keys of another sequence are all seen.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention_view.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/dropout_row.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"
#include "sim/base/check.h"
#include "sim/base/relative_position.h"

namespace rehearse::kernels::cpu {
namespace {

// body(batch, head, offset of the head's [seq, keys] matrix).
template <class Body>
void over_heads(ThreadPool& pool, const AttentionShape& s, const Body& body) {
  pool.ranges(s.micro_batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) body(i / s.heads, i % s.heads, i * s.seq * s.compared());
  });
}

// body(row of [micro_batch * heads * seq], the first column that is not masked, columns that are not masked).
template <class Body>
void over_score_rows(ThreadPool& pool, const AttentionShape& s, const Body& body) {
  pool.ranges(s.micro_batch * s.heads * s.seq, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = row % s.seq, first = s.first_seen(row / s.seq / s.heads, position);
      body(row, first, (s.causal ? position + 1 : s.compared()) - first);
    }
  });
}

// What the mask leaves out of a row of `keys`: all but n from column `first` on.
template <class T>
void clear_masked(const AttentionShape& s, T* row, std::int64_t first, std::int64_t n) {
  std::fill(row, row + first, T{});
  std::fill(row + first + n, row + s.compared(), T{});
}

float softmax_scale(const AttentionShape& s) {
  return static_cast<float>(s.scale());
}

// What a score becomes before the softmax.
float capped_score(float scaled, float cap) {
  return cap * std::tanh(scaled / cap);
}

// Of each distance of a key from a query, from 1 - seq on, the bias's bucket.
std::vector<std::int32_t> buckets_of(const AttentionShape& s) {
  REHEARSE_CHECK(s.unscaled && s.bias_buckets > 0, "a bias of {} buckets of scores that are scaled", s.bias_buckets);
  std::vector<std::int32_t> buckets;
  for (std::int64_t distance = 1 - s.seq; distance < s.compared(); ++distance)
    buckets.push_back(
        static_cast<std::int32_t>(relative_position_bucket(distance, s.bias_buckets, s.bias_distance, !s.causal)));
  return buckets;
}

}  // namespace

void CpuKernels::attention_scores(const AttentionShape& s, const float* queries, const float* keys, float* scores) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.compared(), s.head_dim, {queries + view.query(b, h), view.query_stride},
             {keys + view.key(b, h), view.key_stride, true}, false, scores + at, s.compared());
  });
}

void CpuKernels::attention_softmax(const AttentionShape& s, const float* scores, float* p) {
  const auto cap = static_cast<float>(s.softcap);
  const bool alibi = s.alibi_heads > 0;
  const float scale = cap > 0 || alibi ? 1 : softmax_scale(s), before_cap = softmax_scale(s);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const float* x = scores + row * s.compared() + first;
    float* y = p + row * s.compared() + first;
    if (cap > 0) {
      for (std::int64_t i = 0; i < n; ++i) y[i] = capped_score(x[i] * before_cap, cap);
      x = y;
    }
    if (alibi) {
      const float slope = s.slope(row / s.seq % s.heads);
      const std::int64_t behind = first - row % s.seq;
      for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * before_cap + slope * static_cast<float>(behind + i);
      x = y;
    }
    const float max = max_of(n, x) * scale;
    const float total = sum_terms(n, [=, next = s.compared()](std::int64_t i, auto tag) {
      __builtin_prefetch(x + next + i);
      __builtin_prefetch(y + next + i, 1);
      const auto e = exp(get(x + i, tag) * scale - max);
      put(y + i, e);
      return e;
    });
    const float inverse = 1 / total;
    for (std::int64_t i = 0; i < n; ++i) y[i] *= inverse;
    clear_masked(s, p + row * s.compared(), first, n);
  });
}

void CpuKernels::attention_biased_softmax(const AttentionShape& s, const float* scores, const float* table, float* p) {
  const std::vector<std::int32_t> buckets = buckets_of(s);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const float* x = scores + row * s.compared() + first;
    float* __restrict y = p + row * s.compared() + first;
    const std::int32_t* bucket = buckets.data() + first - row % s.seq + s.seq - 1;
    const float* bias = table + row / s.seq % s.heads * s.bias_buckets;
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] + bias[bucket[i]];
    const float max = max_of(n, y);
    const float total = sum_terms(n, [=](std::int64_t i, auto tag) {
      const auto e = exp(get(y + i, tag) - max);
      put(y + i, e);
      return e;
    });
    const float inverse = 1 / total;
    for (std::int64_t i = 0; i < n; ++i) y[i] *= inverse;
    clear_masked(s, p + row * s.compared(), first, n);
  });
}

// A head's sums in fp64, sequence by sequence.
void CpuKernels::attention_bias_gradient(const AttentionShape& s, const float* d_s, float* d_table) {
  const std::vector<std::int32_t> buckets = buckets_of(s);
  pool_.ranges(s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> sums(static_cast<std::size_t>(s.bias_buckets));
    for (std::int64_t head = begin; head < end; ++head) {
      std::fill(sums.begin(), sums.end(), 0);
      for (std::int64_t i = head; i < s.micro_batch * s.heads; i += s.heads)
        for (std::int64_t query = 0; query < s.seq; ++query) {
          const float* row = d_s + (i * s.seq + query) * s.compared();
          const std::int32_t* bucket = buckets.data() + s.seq - 1 - query;
          const std::int64_t seen = s.causal ? query + 1 : s.compared();
          for (std::int64_t key = 0; key < seen; ++key) sums[static_cast<std::size_t>(bucket[key])] += row[key];
        }
      for (std::int64_t k = 0; k < s.bias_buckets; ++k)
        d_table[head * s.bias_buckets + k] += static_cast<float>(sums[static_cast<std::size_t>(k)]);
    }
  });
}

void CpuKernels::attention_dropout(const AttentionShape& s, const DropoutSite& site, const float* p, float* d,
                                   std::uint8_t* mask) {
  const DropoutRow drop(site);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const std::int64_t batch = row / s.seq / s.heads, head = site.first_head + row / s.seq % s.heads;
    const float* x = p + row * s.compared() + first;
    float* y = d + row * s.compared() + first;
    std::uint8_t* keep = mask + row * s.compared() + first;
    if (site.probability == 0) {
      std::copy_n(x, n, y);
      std::fill_n(keep, n, std::uint8_t{1});
    } else {
      DropoutRow::pieces(drop.key, drop.first_sequence + batch, site.first_position + row % s.seq,
                         attention_column(head, s.compared(), first), n,
                         [&](std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
                           drop.each(count, numbers, keep + offset, [=](std::int64_t i, auto tag, auto kept_here) {
                             put(y + offset + i, kept(get(x + offset + i, tag) * drop.kept_scale, kept_here));
                           });
                         });
    }
    clear_masked(s, d + row * s.compared(), first, n);
    clear_masked(s, mask + row * s.compared(), first, n);
  });
}

void CpuKernels::attention_context(const AttentionShape& s, const float* d, const float* qkv, float* out) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.values(), s.compared(), {d + at, s.compared()}, {qkv + view.value(b, h), view.key_stride}, false,
             out + view.out(b, h), view.out_stride);
  });
}

void CpuKernels::attention_context_backward_probs(const AttentionShape& s, const float* d_out, const float* qkv,
                                                  float* d_d) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.compared(), s.values(), {d_out + view.out(b, h), view.out_stride},
             {qkv + view.value(b, h), view.key_stride, true}, false, d_d + at, s.compared());
  });
}

// Gradients of a key or value sum over the query heads it serves: split over key heads.
void CpuKernels::attention_context_backward_value(const AttentionShape& s, const float* d_out, const float* d,
                                                  float* d_qkv) {
  const AttentionView view(s);
  pool_.ranges(s.micro_batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * view.group; i < end * view.group; ++i) {
      const std::int64_t b = i / s.heads, h = i % s.heads;
      multiply(s.compared(), s.values(), s.seq, {d + i * s.seq * s.compared(), s.compared(), true},
               {d_out + view.out(b, h), view.out_stride}, h % view.group > 0, d_qkv + view.value(b, h),
               view.key_stride);
    }
  });
}

void CpuKernels::attention_dropout_backward(const AttentionShape& s, double probability, const float* d_d,
                                            const std::uint8_t* mask, float* d_p) {
  dropout_backward(s.micro_batch * s.heads * s.seq * s.compared(), probability, d_d, mask, d_p);
}

void CpuKernels::attention_softmax_backward(const AttentionShape& s, const float* d_p, const float* p, float* d_s) {
  const float scale = softmax_scale(s);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const float* __restrict d = d_p + row * s.compared() + first;
    const float* __restrict probability = p + row * s.compared() + first;
    float* __restrict out = d_s + row * s.compared() + first;
    const float mean = dot(n, d, probability);
    for (std::int64_t i = 0; i < n; ++i) out[i] = probability[i] * (d[i] - mean) * scale;
    clear_masked(s, d_s + row * s.compared(), first, n);
  });
}

// d cap tanh(x / cap) / dx = 1 - tanh^2.
void CpuKernels::attention_capped_softmax_backward(const AttentionShape& s, const float* d_p, const float* p,
                                                   const float* scores, float* d_s) {
  const float scale = softmax_scale(s), cap = static_cast<float>(s.softcap);
  attention_softmax_backward(s, d_p, p, d_s);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const float* __restrict x = scores + row * s.compared() + first;
    float* __restrict out = d_s + row * s.compared() + first;
    for (std::int64_t i = 0; i < n; ++i) {
      const float t = std::tanh(x[i] * scale / cap);
      out[i] *= 1 - t * t;
    }
  });
}

void CpuKernels::attention_scores_backward_query(const AttentionShape& s, const float* d_s, const float* qkv,
                                                 float* d_qkv) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.head_dim, s.compared(), {d_s + at, s.compared()}, {qkv + view.key(b, h), view.key_stride}, false,
             d_qkv + view.query(b, h), view.query_stride);
  });
}

void CpuKernels::attention_scores_backward_key(const AttentionShape& s, const float* d_s, const float* qkv,
                                               float* d_qkv) {
  const AttentionView view(s);
  pool_.ranges(s.micro_batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * view.group; i < end * view.group; ++i) {
      const std::int64_t b = i / s.heads, h = i % s.heads;
      multiply(s.compared(), s.head_dim, s.seq, {d_s + i * s.seq * s.compared(), s.compared(), true},
               {qkv + view.query(b, h), view.query_stride}, h % view.group > 0, d_qkv + view.key(b, h),
               view.key_stride);
    }
  });
}

}  // namespace rehearse::kernels::cpu
