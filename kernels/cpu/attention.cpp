// Attention in separate kernels, as software before flash attention ran it: scores S = Q K^T, probabilities P =
// softmax(S / sqrt(head_dim)) under the causal mask, D = dropout(P), out = D V, and their gradients. Above the
// diagonal, and before a window or a document, P, D and their gradients are zero and masks are not drawn. A sequence's
// heads are split over the threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_view.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/dropout_row.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

// body(batch, head, offset of the head's [seq, seq] matrix).
template <class Body>
void over_heads(ThreadPool& pool, const AttentionShape& s, const Body& body) {
  pool.ranges(s.micro_batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) body(i / s.heads, i % s.heads, i * s.seq * s.seq);
  });
}

// body(row of [micro_batch * heads * seq], the first column that is not masked, columns that are not masked).
template <class Body>
void over_score_rows(ThreadPool& pool, const AttentionShape& s, const Body& body) {
  pool.ranges(s.micro_batch * s.heads * s.seq, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = row % s.seq, first = s.first_seen(row / s.seq / s.heads, position);
      body(row, first, (s.causal ? position + 1 : s.seq) - first);
    }
  });
}

// What the mask leaves out of a row of `seq`: all but n from column `first` on.
template <class T>
void clear_masked(const AttentionShape& s, T* row, std::int64_t first, std::int64_t n) {
  std::fill(row, row + first, T{});
  std::fill(row + first + n, row + s.seq, T{});
}

float softmax_scale(const AttentionShape& s) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
}

}  // namespace

void CpuKernels::attention_scores(const AttentionShape& s, const float* qkv, float* scores) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.seq, s.head_dim, {qkv + view.query(b, h), view.qkv_stride},
             {qkv + view.key(b, h), view.qkv_stride, true}, false, scores + at, s.seq);
  });
}

void CpuKernels::attention_softmax(const AttentionShape& s, const float* scores, float* p) {
  const float scale = softmax_scale(s);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const float* x = scores + row * s.seq + first;
    float* __restrict y = p + row * s.seq + first;
    const float max = max_of(n, x) * scale;
    const float total = sum_terms(n, [=, next = s.seq](std::int64_t i, auto tag) {
      __builtin_prefetch(x + next + i);
      __builtin_prefetch(y + next + i, 1);
      const auto e = exp(get(x + i, tag) * scale - max);
      put(y + i, e);
      return e;
    });
    const float inverse = 1 / total;
    for (std::int64_t i = 0; i < n; ++i) y[i] *= inverse;
    clear_masked(s, p + row * s.seq, first, n);
  });
}

void CpuKernels::attention_dropout(const AttentionShape& s, const DropoutSite& site, const float* p, float* d,
                                   std::uint8_t* mask) {
  const DropoutRow drop(site);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const std::int64_t batch = row / s.seq / s.heads, head = site.first_head + row / s.seq % s.heads;
    const float* x = p + row * s.seq + first;
    float* y = d + row * s.seq + first;
    std::uint8_t* keep = mask + row * s.seq + first;
    if (site.probability == 0) {
      std::copy_n(x, n, y);
      std::fill_n(keep, n, std::uint8_t{1});
    } else {
      DropoutRow::pieces(drop.key, drop.first_sequence + batch, site.first_position + row % s.seq,
                         attention_column(head, s.seq, first), n,
                         [&](std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
                           drop.each(count, numbers, keep + offset, [=](std::int64_t i, auto tag, auto kept_here) {
                             put(y + offset + i, kept(get(x + offset + i, tag) * drop.kept_scale, kept_here));
                           });
                         });
    }
    clear_masked(s, d + row * s.seq, first, n);
    clear_masked(s, mask + row * s.seq, first, n);
  });
}

void CpuKernels::attention_context(const AttentionShape& s, const float* d, const float* qkv, float* out) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.values(), s.seq, {d + at, s.seq}, {qkv + view.value(b, h), view.qkv_stride}, false,
             out + view.out(b, h), view.out_stride);
  });
}

void CpuKernels::attention_context_backward_probs(const AttentionShape& s, const float* d_out, const float* qkv,
                                                  float* d_d) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.seq, s.values(), {d_out + view.out(b, h), view.out_stride},
             {qkv + view.value(b, h), view.qkv_stride, true}, false, d_d + at, s.seq);
  });
}

// Gradients of a key or value sum over the query heads it serves: split over key heads.
void CpuKernels::attention_context_backward_value(const AttentionShape& s, const float* d_out, const float* d,
                                                  float* d_qkv) {
  const AttentionView view(s);
  pool_.ranges(s.micro_batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * view.group; i < end * view.group; ++i) {
      const std::int64_t b = i / s.heads, h = i % s.heads;
      multiply(s.seq, s.values(), s.seq, {d + i * s.seq * s.seq, s.seq, true},
               {d_out + view.out(b, h), view.out_stride}, h % view.group > 0, d_qkv + view.value(b, h),
               view.qkv_stride);
    }
  });
}

void CpuKernels::attention_dropout_backward(const AttentionShape& s, double probability, const float* d_d,
                                            const std::uint8_t* mask, float* d_p) {
  dropout_backward(s.micro_batch * s.heads * s.seq * s.seq, probability, d_d, mask, d_p);
}

void CpuKernels::attention_softmax_backward(const AttentionShape& s, const float* d_p, const float* p, float* d_s) {
  const float scale = softmax_scale(s);
  over_score_rows(pool_, s, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    const float* __restrict d = d_p + row * s.seq + first;
    const float* __restrict probability = p + row * s.seq + first;
    float* __restrict out = d_s + row * s.seq + first;
    const float mean = dot(n, d, probability);
    for (std::int64_t i = 0; i < n; ++i) out[i] = probability[i] * (d[i] - mean) * scale;
    clear_masked(s, d_s + row * s.seq, first, n);
  });
}

void CpuKernels::attention_scores_backward_query(const AttentionShape& s, const float* d_s, const float* qkv,
                                                 float* d_qkv) {
  const AttentionView view(s);
  over_heads(pool_, s, [&](std::int64_t b, std::int64_t h, std::int64_t at) {
    multiply(s.seq, s.head_dim, s.seq, {d_s + at, s.seq}, {qkv + view.key(b, h), view.qkv_stride}, false,
             d_qkv + view.query(b, h), view.qkv_stride);
  });
}

void CpuKernels::attention_scores_backward_key(const AttentionShape& s, const float* d_s, const float* qkv,
                                               float* d_qkv) {
  const AttentionView view(s);
  pool_.ranges(s.micro_batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * view.group; i < end * view.group; ++i) {
      const std::int64_t b = i / s.heads, h = i % s.heads;
      multiply(s.seq, s.head_dim, s.seq, {d_s + i * s.seq * s.seq, s.seq, true},
               {qkv + view.query(b, h), view.qkv_stride}, h % view.group > 0, d_qkv + view.key(b, h), view.qkv_stride);
    }
  });
}

}  // namespace rehearse::kernels::cpu
