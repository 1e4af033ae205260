// Typed calls that are the fp32 kernel on widened operands, and nothing else. Sizes in elements, from the shapes of
// kernels/device.h.
#include "kernels/cpu/cpu_device.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

std::int64_t qkv_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * (s.heads * s.head_dim + s.kv_heads * (s.head_dim + s.values()));
}
std::int64_t query_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * s.heads * s.head_dim;
}
std::int64_t out_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * s.heads * s.values();
}
std::int64_t kv_size(const AttentionShape& s, const ContextPart& part) {
  return (part.key_rank < 0 ? part.ranks : 1) * s.seq * s.micro_batch * s.kv_heads * (s.head_dim + s.values());
}
std::int64_t score_size(const AttentionShape& s) {
  return s.micro_batch * s.heads * s.seq * s.compared();
}
// Of the operands that queries are in, and keys and values: packed qkv, or each of its own.
std::int64_t queries_size(const AttentionShape& s) {
  return s.keys > 0 ? query_size(s) : qkv_size(s);
}
std::int64_t keys_size(const AttentionShape& s) {
  return s.keys > 0 ? s.keys * s.micro_batch * s.kv_heads * (s.head_dim + s.values()) : qkv_size(s);
}
std::int64_t table_size(const AttentionShape& s) {
  return s.heads * s.bias_buckets;
}

struct ConvElements {
  std::int64_t x, y, w;
  explicit ConvElements(const ConvShape& s)
      : x(s.batch * s.c_in * s.height * s.width),
        y(s.batch * s.c_out * ((s.height + 2 * s.pad - s.kernel) / s.stride + 1) *
          ((s.width + 2 * s.pad - s.kernel) / s.stride + 1)),
        w(s.c_out * (s.c_in / s.groups) * s.kernel * s.kernel) {}
};

}  // namespace

void CpuDevice::gemm(const Gemm& s, In a, In b, In bias, Out c) {
  Widened w(*this);
  float* out = s.accumulate ? w.update(c, s.m * s.n) : w.write(c, s.m * s.n);
  kernels_.gemm(s, w.read(a, s.m * s.k), w.read(b, s.k * s.n), w.read(bias, s.n), out);
}

// A product a group, after one another: each is split over the threads.
void CpuDevice::grouped_gemm(const GroupedShape& s, In a, In b, const float* loads, Out c) {
  std::int64_t row = 0;
  for (std::int64_t g = 0; g < s.groups; ++g) {
    const std::int64_t rows = loads ? static_cast<std::int64_t>(loads[g]) : s.rows / s.groups, w = g * s.n * s.k;
    REHEARSE_CHECK(row + rows <= s.rows, "{} rows of {} groups", s.rows, s.groups);
    const std::int64_t x = row * s.k, y = row * s.n;
    switch (s.part) {
      case GroupedPart::forward:
        if (rows > 0) gemm({rows, s.n, s.k, false, true}, from(a, x), from(b, w), nullptr, from(c, y));
        break;
      case GroupedPart::backward_input:
        if (rows > 0) gemm({rows, s.k, s.n}, from(a, y), from(b, w), nullptr, from(c, x));
        break;
      case GroupedPart::backward_weight:
        gemm({s.n, s.k, rows, true, false, s.accumulate}, from(a, y), from(b, x), nullptr, from(c, w));
        break;
    }
    row += rows;
  }
}

void CpuDevice::router_gate(const RouterShape& s, In logits, float* weights, std::int32_t* chosen) {
  kernels_.router_gate(s, Widened(*this).read(logits, s.tokens * s.experts), weights, chosen);
}
void CpuDevice::router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
  kernels_.router_place(s, chosen, places, loads);
}
void CpuDevice::router_gate_backward(const RouterShape& s, double aux, const float* d_weights, In logits,
                                     const std::int32_t* chosen, const float* loads, const float* loss_scale,
                                     Out d_logits) {
  Widened w(*this);
  const std::int64_t n = s.tokens * s.experts;
  if (loss_scale) aux *= static_cast<double>(*loss_scale);
  kernels_.router_gate_backward(s, aux, d_weights, w.read(logits, n), chosen, loads, w.write(d_logits, n));
}
void CpuDevice::permute(const PermuteShape& s, In x, const std::int32_t* places, Out y) {
  if (size_of(x.type) == 1)  // rows of bytes, as they are
    return kernels_.permute(s, static_cast<const std::uint8_t*>(x.data), places, static_cast<std::uint8_t*>(y.data));
  Widened w(*this);
  kernels_.permute(s, w.read(x, s.tokens * s.cols), places, w.write(y, s.rows * s.cols));
}
void CpuDevice::unpermute(const PermuteShape& s, In y, const std::int32_t* places, const float* weights, Out out) {
  Widened w(*this);
  kernels_.unpermute(s, w.read(y, s.rows * s.cols), places, weights, w.write(out, s.tokens * s.cols));
}
void CpuDevice::unpermute_backward(const PermuteShape& s, In d_out, In y, const std::int32_t* places,
                                   const float* weights, Out d_y, float* d_weights) {
  Widened w(*this);
  kernels_.unpermute_backward(s, w.read(d_out, s.tokens * s.cols), w.read(y, s.rows * s.cols), places, weights,
                              w.write(d_y, s.rows * s.cols), d_weights);
}

void CpuDevice::cached_attention(const AttentionShape& s, std::span<const CachedSequence> sequences, In qkv, Out out) {
  Widened w(*this);
  kernels_.cached_attention(s, sequences, w.read(qkv, qkv_size(s)), w.write(out, out_size(s)));
}
void CpuDevice::flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp) {
  Widened w(*this);
  kernels_.flash_forward(s, dropout, w.read(qkv, qkv_size(s)), w.write(out, out_size(s)), logsumexp);
}
void CpuDevice::flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                               const float* logsumexp, Out d_qkv) {
  Widened w(*this);
  kernels_.flash_backward(s, dropout, w.read(d_out, out_size(s)), w.read(qkv, qkv_size(s)), w.read(out, out_size(s)),
                          logsumexp, w.write(d_qkv, qkv_size(s)));
}

void CpuDevice::context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In qkv,
                                In kv, Out out, float* logsumexp) {
  Widened w(*this);
  float* y = part.merge ? w.update(out, out_size(s)) : w.write(out, out_size(s));
  kernels_.context_forward(s, part, dropout, w.read(qkv, qkv_size(s)), w.read(kv, kv_size(s, part)), y, logsumexp);
}
void CpuDevice::context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In d_out,
                                 In qkv, In kv, In out, const float* logsumexp, Out d_q, Out d_kv) {
  Widened w(*this);
  float* dq = part.merge ? w.update(d_q, query_size(s)) : w.write(d_q, query_size(s));
  kernels_.context_backward(s, part, dropout, w.read(d_out, out_size(s)), w.read(qkv, qkv_size(s)),
                            w.read(kv, kv_size(s, part)), w.read(out, out_size(s)), logsumexp, dq,
                            w.write(d_kv, kv_size(s, part)));
}

void CpuDevice::attention_scores(const AttentionShape& s, In qkv, Out scores) {
  Widened w(*this);
  const float* operand = w.read(qkv, qkv_size(s));
  kernels_.attention_scores(s, operand, operand, w.write(scores, score_size(s)));
}
void CpuDevice::cross_attention_scores(const AttentionShape& s, In q, In kv, Out scores) {
  Widened w(*this);
  kernels_.attention_scores(s, w.read(q, queries_size(s)), w.read(kv, keys_size(s)), w.write(scores, score_size(s)));
}
void CpuDevice::attention_biased_softmax(const AttentionShape& s, In scores, In table, Out p) {
  Widened w(*this);
  kernels_.attention_biased_softmax(s, w.read(scores, score_size(s)), w.read(table, table_size(s)),
                                    w.write(p, score_size(s)));
}
void CpuDevice::attention_bias_gradient(const AttentionShape& s, In d_s, Out d_table) {
  Widened w(*this);
  kernels_.attention_bias_gradient(s, w.read(d_s, score_size(s)), w.update(d_table, table_size(s)));
}
void CpuDevice::attention_softmax(const AttentionShape& s, In scores, Out p) {
  Widened w(*this);
  kernels_.attention_softmax(s, w.read(scores, score_size(s)), w.write(p, score_size(s)));
}
void CpuDevice::attention_dropout(const AttentionShape& s, const DropoutSite& dropout, In p, Out d,
                                  std::uint8_t* mask) {
  Widened w(*this);
  kernels_.attention_dropout(s, dropout, w.read(p, score_size(s)), w.write(d, score_size(s)), mask);
}
void CpuDevice::attention_context(const AttentionShape& s, In d, In qkv, Out out) {
  Widened w(*this);
  kernels_.attention_context(s, w.read(d, score_size(s)), w.read(qkv, keys_size(s)), w.write(out, out_size(s)));
}
void CpuDevice::attention_context_backward_probs(const AttentionShape& s, In d_out, In qkv, Out d_d) {
  Widened w(*this);
  kernels_.attention_context_backward_probs(s, w.read(d_out, out_size(s)), w.read(qkv, keys_size(s)),
                                            w.write(d_d, score_size(s)));
}
void CpuDevice::attention_context_backward_value(const AttentionShape& s, In d_out, In d, Out d_qkv) {
  Widened w(*this);
  kernels_.attention_context_backward_value(s, w.read(d_out, out_size(s)), w.read(d, score_size(s)),
                                            w.update(d_qkv, keys_size(s)));
}
void CpuDevice::attention_dropout_backward(const AttentionShape& s, double probability, In d_d,
                                           const std::uint8_t* mask, Out d_p) {
  dropout_backward(score_size(s), probability, d_d, mask, d_p);
}
void CpuDevice::attention_softmax_backward(const AttentionShape& s, In d_p, In p, Out d_s) {
  Widened w(*this);
  kernels_.attention_softmax_backward(s, w.read(d_p, score_size(s)), w.read(p, score_size(s)),
                                      w.write(d_s, score_size(s)));
}
void CpuDevice::attention_capped_softmax_backward(const AttentionShape& s, In d_p, In p, In scores, Out d_s) {
  Widened w(*this);
  const std::int64_t n = score_size(s);
  kernels_.attention_capped_softmax_backward(s, w.read(d_p, n), w.read(p, n), w.read(scores, n), w.write(d_s, n));
}
void CpuDevice::attention_scores_backward_query(const AttentionShape& s, In d_s, In qkv, Out d_qkv) {
  Widened w(*this);
  kernels_.attention_scores_backward_query(s, w.read(d_s, score_size(s)), w.read(qkv, keys_size(s)),
                                           w.update(d_qkv, queries_size(s)));
}
void CpuDevice::attention_scores_backward_key(const AttentionShape& s, In d_s, In qkv, Out d_qkv) {
  Widened w(*this);
  kernels_.attention_scores_backward_key(s, w.read(d_s, score_size(s)), w.read(qkv, queries_size(s)),
                                         w.update(d_qkv, keys_size(s)));
}

void CpuDevice::norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta, Out y,
                             float* stats) {
  Widened w(*this);
  kernels_.norm_forward(rms, rows, cols, eps, w.read(x, rows * cols), w.read(gamma, cols), w.read(beta, cols),
                        w.write(y, rows * cols), stats);
}
void CpuDevice::norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                    In gamma, In residual, Out dx) {
  Widened w(*this);
  kernels_.norm_backward_input(rms, rows, cols, w.read(dy, rows * cols), w.read(x, rows * cols), stats,
                               w.read(gamma, cols), w.read(residual, rows * cols), w.write(dx, rows * cols));
}
void CpuDevice::norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                     Out d_gamma, Out d_beta) {
  Widened w(*this);
  kernels_.norm_backward_weight(rms, rows, cols, w.read(dy, rows * cols), w.read(x, rows * cols), stats,
                                w.update(d_gamma, cols), w.update(d_beta, cols));
}

void CpuDevice::activation_forward(Unary fn, std::int64_t n, In x, Out y) {
  in_pieces(n, fp32(x) && fp32(y), [&](std::int64_t i, std::int64_t count) {
    Widened w(*this);
    kernels_.activation_forward(fn, count, w.read(from(x, i), count), w.write(from(y, i), count));
  });
}
void CpuDevice::activation_backward(Unary fn, std::int64_t n, In dy, In x, Out dx) {
  in_pieces(n, fp32(dy) && fp32(x) && fp32(dx), [&](std::int64_t i, std::int64_t count) {
    Widened w(*this);
    kernels_.activation_backward(fn, count, w.read(from(dy, i), count), w.read(from(x, i), count),
                                 w.write(from(dx, i), count));
  });
}
void CpuDevice::swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) {
  Widened w(*this);
  const float* gate = w.read(gate_up, rows * (up ? 1 : 2) * cols);
  kernels_.swiglu_forward(rows, cols, gate, w.read(up, rows * cols), w.write(y, rows * cols));
}
void CpuDevice::geglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) {
  Widened w(*this);
  const float* gate = w.read(gate_up, rows * (up ? 1 : 2) * cols);
  kernels_.geglu_forward(rows, cols, gate, w.read(up, rows * cols), w.write(y, rows * cols));
}
void CpuDevice::geglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) {
  Widened w(*this);
  const float* gate = w.read(gate_up, rows * (up ? 1 : 2) * cols);
  kernels_.geglu_backward(rows, cols, w.read(dy, rows * cols), gate, w.read(up, rows * cols),
                          w.write(d_gate_up, rows * 2 * cols));
}
void CpuDevice::swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) {
  Widened w(*this);
  const float* gate = w.read(gate_up, rows * (up ? 1 : 2) * cols);
  kernels_.swiglu_backward(rows, cols, w.read(dy, rows * cols), gate, w.read(up, rows * cols),
                           w.write(d_gate_up, rows * 2 * cols));
}
void CpuDevice::weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, const float* weights, Out y) {
  Widened w(*this);
  kernels_.weighted_swiglu_forward(rows, cols, w.read(gate_up, rows * 2 * cols), weights, w.write(y, rows * cols));
}
void CpuDevice::weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, const float* weights,
                                         Out d_gate_up, float* d_weights) {
  Widened w(*this);
  kernels_.weighted_swiglu_backward(rows, cols, w.read(dy, rows * cols), w.read(gate_up, rows * 2 * cols), weights,
                                    w.write(d_gate_up, rows * 2 * cols), d_weights);
}

void CpuDevice::add(std::int64_t n, In a, In b, Out y) {
  in_pieces(n, fp32(a) && fp32(b) && fp32(y), [&](std::int64_t i, std::int64_t count) {
    Widened w(*this);
    kernels_.add(count, w.read(from(a, i), count), w.read(from(b, i), count), w.write(from(y, i), count));
  });
}
void CpuDevice::accumulate(std::int64_t n, In x, Out y) {
  in_pieces(n, fp32(x) && fp32(y), [&](std::int64_t i, std::int64_t count) {
    Widened w(*this);
    kernels_.accumulate(count, w.read(from(x, i), count), w.update(from(y, i), count));
  });
}
void CpuDevice::scale(std::int64_t n, float value, In x, Out y) {
  in_pieces(n, fp32(x) && fp32(y), [&](std::int64_t i, std::int64_t count) {
    Widened w(*this);
    kernels_.scale(count, value, w.read(from(x, i), count), w.write(from(y, i), count));
  });
}
void CpuDevice::scale_rows(std::int64_t rows, std::int64_t cols, const float* factors, Out x) {
  Widened w(*this);
  kernels_.scale_rows(rows, cols, factors, w.update(x, rows * cols));
}
void CpuDevice::bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, In x, In bias,
                                 In residual, Out y, std::uint8_t* mask) {
  Widened w(*this);
  kernels_.bias_dropout_add(rows, cols, dropout, w.read(x, rows * cols), w.read(bias, cols),
                            w.read(residual, rows * cols), w.write(y, rows * cols), mask);
}
void CpuDevice::dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, In x, Out y,
                        std::uint8_t* mask) {
  Widened w(*this);
  kernels_.dropout(rows, cols, site, w.read(x, rows * cols), w.write(y, rows * cols), mask);
}
void CpuDevice::dropout_backward(std::int64_t n, double probability, In dy, const std::uint8_t* mask, Out dx) {
  in_pieces(n, fp32(dy) && fp32(dx), [&](std::int64_t i, std::int64_t count) {
    Widened w(*this);
    kernels_.dropout_backward(count, probability, w.read(from(dy, i), count), mask + i, w.write(from(dx, i), count));
  });
}
void CpuDevice::bias_grad(std::int64_t rows, std::int64_t cols, In dy, Out d_bias) {
  Widened w(*this);
  kernels_.bias_grad(rows, cols, w.read(dy, rows * cols), w.update(d_bias, cols));
}

// Of the table only the positions of these rows.
void CpuDevice::add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                             std::int64_t first_position, In x, In table, Out y) {
  Widened w(*this);
  kernels_.add_position(rows, cols, micro_batch, 0, w.read(x, rows * cols),
                        w.read(from(table, first_position * cols), rows / micro_batch * cols), w.write(y, rows * cols));
}
void CpuDevice::position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                              std::int64_t first_position, In dy, Out d_table) {
  Widened w(*this);
  kernels_.position_grad(rows, cols, micro_batch, 0, w.read(dy, rows * cols),
                         w.update(from(d_table, first_position * cols), rows / micro_batch * cols));
}
void CpuDevice::rope(const AttentionShape& s, std::int64_t first_position, bool backward, Out qkv) {
  Widened w(*this);
  kernels_.rope(s, first_position, backward, w.update(qkv, qkv_size(s)));
}

void CpuDevice::latent_heads(const LatentShape& s, std::int64_t first_position, In q, In kv, In k_rope, Out qkv) {
  Widened w(*this);
  const std::int64_t heads = s.rows() * s.heads;
  kernels_.latent_heads(s, first_position, w.read(q, heads * s.query()), w.read(kv, heads * (s.nope + s.value)),
                        w.read(k_rope, s.rows() * s.rope), w.write(qkv, heads * s.packed()));
}
void CpuDevice::latent_heads_backward(const LatentShape& s, std::int64_t first_position, In d_qkv, Out d_q, Out d_kv,
                                      Out d_k_rope) {
  Widened w(*this);
  const std::int64_t heads = s.rows() * s.heads;
  kernels_.latent_heads_backward(s, first_position, w.read(d_qkv, heads * s.packed()), w.write(d_q, heads * s.query()),
                                 w.write(d_kv, heads * (s.nope + s.value)), w.write(d_k_rope, s.rows() * s.rope));
}

void CpuDevice::cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale,
                                      In logits, const std::int32_t* targets, float* stats, float* loss) {
  Widened w(*this);
  kernels_.cross_entropy_forward(rows, cols, valid_cols, scale, w.read(logits, rows * cols), targets, stats, loss);
}
void CpuDevice::cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                                  In logits, float* max) {
  Widened w(*this);
  kernels_.cross_entropy_max(rows, cols, valid_cols, first_col, w.read(logits, rows * cols), max);
}
void CpuDevice::cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                      std::int64_t first_col, In logits, const std::int32_t* targets, const float* max,
                                      float* sums) {
  Widened w(*this);
  kernels_.cross_entropy_exp_sum(rows, cols, valid_cols, first_col, w.read(logits, rows * cols), targets, max, sums);
}
void CpuDevice::cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) {
  kernels_.cross_entropy_loss(rows, scale, sums, loss);
}
void CpuDevice::cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                       std::int64_t first_col, double scale, const float* loss_scale, In logits,
                                       const std::int32_t* targets, const float* max, std::int64_t max_stride,
                                       const float* sum, std::int64_t sum_stride, Out d_logits) {
  Widened w(*this);
  kernels_.cross_entropy_backward(
      rows, cols, valid_cols, first_col, loss_scale ? scale * static_cast<double>(*loss_scale) : scale,
      w.read(logits, rows * cols), targets, max, max_stride, sum, sum_stride, w.write(d_logits, rows * cols));
}

void CpuDevice::mse_forward(std::int64_t n, double scale, In x, const float* target, float* loss) {
  Widened w(*this);
  *loss = static_cast<float>(*loss + scale * kernels_.sum_square_differences(n, w.read(x, n), target));
}
void CpuDevice::mse_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target, Out dx) {
  Widened w(*this);
  const double by = loss_scale ? scale * static_cast<double>(*loss_scale) : scale;
  kernels_.mse_backward(n, by, w.read(x, n), target, w.write(dx, n));
}

void CpuDevice::conv_forward(const ConvShape& s, In x, In w, In bias, Out y) {
  const ConvElements n(s);
  Widened wide(*this);
  kernels_.conv_forward(s, wide.read(x, n.x), wide.read(w, n.w), wide.read(bias, s.c_out), wide.write(y, n.y));
}
void CpuDevice::conv_backward_input(const ConvShape& s, In dy, In w, Out dx) {
  const ConvElements n(s);
  Widened wide(*this);
  kernels_.conv_backward_input(s, wide.read(dy, n.y), wide.read(w, n.w), wide.write(dx, n.x));
}
void CpuDevice::conv_backward_weight(const ConvShape& s, In dy, In x, Out dw, Out d_bias) {
  const ConvElements n(s);
  Widened wide(*this);
  kernels_.conv_backward_weight(s, wide.read(dy, n.y), wide.read(x, n.x), wide.update(dw, n.w),
                                wide.update(d_bias, s.c_out));
}
void CpuDevice::pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                             std::int64_t window, In x, Out y, std::int32_t* argmax) {
  Widened w(*this);
  kernels_.pool_forward(batch, channels, height, width, window, w.read(x, batch * channels * height * width),
                        w.write(y, batch * channels * (height / window) * (width / window)), argmax);
}
void CpuDevice::pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                              std::int64_t window, In dy, const std::int32_t* argmax, Out dx) {
  Widened w(*this);
  kernels_.pool_backward(batch, channels, height, width, window,
                         w.read(dy, batch * channels * (height / window) * (width / window)), argmax,
                         w.write(dx, batch * channels * height * width));
}

void CpuDevice::max_pool_forward(const PoolShape& s, In x, Out y, std::int32_t* argmax) {
  const std::int64_t planes = s.batch * s.channels;
  Widened w(*this);
  kernels_.max_pool_forward(s, w.read(x, planes * s.height * s.width),
                            w.write(y, planes * s.out_height() * s.out_width()), argmax);
}
void CpuDevice::max_pool_backward(const PoolShape& s, In dy, const std::int32_t* argmax, Out dx) {
  const std::int64_t planes = s.batch * s.channels;
  Widened w(*this);
  kernels_.max_pool_backward(s, w.read(dy, planes * s.out_height() * s.out_width()), argmax,
                             w.write(dx, planes * s.height * s.width));
}
void CpuDevice::average_pool_forward(std::int64_t planes, std::int64_t pixels, In x, Out y) {
  Widened w(*this);
  kernels_.average_pool_forward(planes, pixels, w.read(x, planes * pixels), w.write(y, planes));
}
void CpuDevice::average_pool_backward(std::int64_t planes, std::int64_t pixels, In dy, Out dx) {
  Widened w(*this);
  kernels_.average_pool_backward(planes, pixels, w.read(dy, planes), w.write(dx, planes * pixels));
}

void CpuDevice::channel_scale_forward(std::int64_t planes, std::int64_t pixels, In x, In f, Out y) {
  Widened w(*this);
  kernels_.channel_scale_forward(planes, pixels, w.read(x, planes * pixels), w.read(f, planes),
                                 w.write(y, planes * pixels));
}
void CpuDevice::channel_scale_backward(std::int64_t planes, std::int64_t pixels, In dy, In x, In f, Out dx, Out df) {
  Widened w(*this);
  kernels_.channel_scale_backward(planes, pixels, w.read(dy, planes * pixels), w.read(x, planes * pixels),
                                  w.read(f, planes), w.write(dx, planes * pixels), w.write(df, planes));
}

void CpuDevice::batch_norm_sums(const BatchNormShape& s, In x, float* sums) {
  Widened w(*this);
  kernels_.batch_norm_sums(s, w.read(x, s.batch * s.channels * s.pixels), sums);
}
void CpuDevice::batch_norm_normalise(const BatchNormShape& s, In x, const float* sums, In gamma, In beta, Out y) {
  const std::int64_t n = s.batch * s.channels * s.pixels;
  Widened w(*this);
  kernels_.batch_norm_normalise(s, w.read(x, n), sums, w.read(gamma, s.channels), w.read(beta, s.channels),
                                w.write(y, n));
}
void CpuDevice::batch_norm_backward_sums(const BatchNormShape& s, In dy, In x, const float* sums, float* d_sums) {
  const std::int64_t n = s.batch * s.channels * s.pixels;
  Widened w(*this);
  kernels_.batch_norm_backward_sums(s, w.read(dy, n), w.read(x, n), sums, d_sums);
}
void CpuDevice::batch_norm_backward_weight(const BatchNormShape& s, const float* d_sums, Out d_gamma, Out d_beta) {
  Widened w(*this);
  kernels_.accumulate(s.channels, d_sums, w.update(d_beta, s.channels));
  kernels_.accumulate(s.channels, d_sums + s.channels, w.update(d_gamma, s.channels));
}
void CpuDevice::batch_norm_backward_input(const BatchNormShape& s, In dy, In x, const float* sums, In gamma,
                                          const float* d_sums, Out dx) {
  const std::int64_t n = s.batch * s.channels * s.pixels;
  Widened w(*this);
  kernels_.batch_norm_backward_input(s, w.read(dy, n), w.read(x, n), sums, w.read(gamma, s.channels), d_sums,
                                     w.write(dx, n));
}

}  // namespace rehearse::kernels::cpu
