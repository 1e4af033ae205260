// What a device can compute: one interface, implemented for the CPU (cpu/, Eigen) and later for GPUs. It knows tensors,
// never plans. Calls are made from one thread (a stream) at a time per Device object; a Device may use several threads
// inside. Pointers are device memory, contiguous and row-major, never aliasing unless the comment allows it.
//
// Layout: activations [sequence, micro_batch, width]; rows = sequence * micro_batch. Packed qkv is
// [rows, kv_heads, heads / kv_heads + 2, head_dim] (a group's queries, its key, its value). Weights are [out, in].
#pragma once

#include <cstdint>
#include <memory>

namespace rehearse::kernels {

// C[m, n] (+)= op(A) op(B) (+ bias[n]). op(A) is [m, k] (stored [k, m] if transpose_a), op(B) is [k, n] ([n, k] if
// transpose_b).
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
};

// Which elements of the whole model a dropout mask is about, so that the mask does not depend on the split: an element
// is (sequence of the global batch, position, column). For attention the column is (head, key position).
struct DropoutSite {
  double probability = 0;                   // of being dropped; kept values are scaled by 1 / (1 - probability)
  std::uint64_t key = 0;                    // seed, step and place in the model, mixed
  const std::int64_t* sequences = nullptr;  // [micro_batch]: index of each sequence
  std::int64_t micro_batch = 1;
  std::int64_t first_position = 0;  // of the first row (sequence parallel)
  std::int64_t first_head = 0;      // attention: of this rank
};

struct AttentionShape {
  std::int64_t micro_batch = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  bool causal = true;
};

struct ConvShape {
  std::int64_t batch = 0, c_in = 0, c_out = 0, height = 0, width = 0, kernel = 3, stride = 1, pad = 1;
};

struct AdamW {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;  // 1-based, for bias correction
};
struct Sgd {
  double lr = 0, momentum = 0, weight_decay = 0;
};

enum class Unary : unsigned char { gelu, relu };  // gelu: tanh form, as GPT-2

class Device {
 public:
  virtual ~Device() = default;

  virtual void gemm(const Gemm& shape, const float* a, const float* b, const float* bias, float* c) = 0;

  // Attention over packed qkv; softmax scale 1 / sqrt(head_dim). logsumexp [rows, heads].
  virtual void flash_forward(const AttentionShape& s, const DropoutSite& dropout, const float* qkv, float* out,
                             float* logsumexp) = 0;
  virtual void flash_backward(const AttentionShape& s, const DropoutSite& dropout, const float* d_out, const float* qkv,
                              const float* out, const float* logsumexp, float* d_qkv) = 0;
  // Unfused parts; P, S, D and their gradients are [micro_batch, heads, seq, seq].
  virtual void attention_scores(const AttentionShape& s, const float* qkv, float* scores) = 0;  // Q K^T, not scaled
  virtual void attention_softmax(const AttentionShape& s, const float* scores, float* p) = 0;   // scaled, masked
  virtual void attention_dropout(const AttentionShape& s, const DropoutSite& dropout, const float* p, float* d,
                                 std::uint8_t* mask) = 0;
  virtual void attention_context(const AttentionShape& s, const float* d, const float* qkv, float* out) = 0;
  virtual void attention_context_backward_probs(const AttentionShape& s, const float* d_out, const float* qkv,
                                                float* d_d) = 0;
  virtual void attention_context_backward_value(const AttentionShape& s, const float* d_out, const float* d,
                                                float* d_qkv) = 0;  // writes the value part
  virtual void attention_dropout_backward(const AttentionShape& s, double probability, const float* d_d,
                                          const std::uint8_t* mask, float* d_p) = 0;
  virtual void attention_softmax_backward(const AttentionShape& s, const float* d_p, const float* p, float* d_s) = 0;
  virtual void attention_scores_backward_query(const AttentionShape& s, const float* d_s, const float* qkv,
                                               float* d_qkv) = 0;  // writes the query part
  virtual void attention_scores_backward_key(const AttentionShape& s, const float* d_s, const float* qkv,
                                             float* d_qkv) = 0;  // writes the key part

  // stats: layer [rows, 2] (mean, 1 / deviation), rms [rows, 1] (1 / root mean square). beta may be null.
  virtual void norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, const float* x,
                            const float* gamma, const float* beta, float* y, float* stats) = 0;
  virtual void norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                                   const float* stats, const float* gamma, const float* residual, float* dx) = 0;
  virtual void norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                                    const float* stats, float* d_gamma, float* d_beta) = 0;  // adds

  virtual void activation_forward(Unary fn, std::int64_t n, const float* x, float* y) = 0;
  virtual void activation_backward(Unary fn, std::int64_t n, const float* dy, const float* x, float* dx) = 0;
  virtual void swiglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, float* y) = 0;
  virtual void swiglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                               float* d_gate_up) = 0;

  virtual void add(std::int64_t n, const float* a, const float* b, float* y) = 0;
  virtual void accumulate(std::int64_t n, const float* x, float* y) = 0;
  virtual void copy(std::int64_t n, const float* x, float* y) = 0;
  virtual void fill(std::int64_t n, float value, float* y) = 0;
  virtual void scale(std::int64_t n, float value, const float* x, float* y) = 0;  // y may be x
  // y = residual + dropout(x + bias); bias, mask may be null.
  virtual void bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, const float* x,
                                const float* bias, const float* residual, float* y, std::uint8_t* mask) = 0;
  virtual void dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, const float* x, float* y,
                       std::uint8_t* mask) = 0;
  virtual void dropout_backward(std::int64_t n, double probability, const float* dy, const std::uint8_t* mask,
                                float* dx) = 0;
  virtual void bias_grad(std::int64_t rows, std::int64_t cols, const float* dy, float* d_bias) = 0;  // adds
  // Rows are positions first_position, ... each micro_batch times.
  virtual void add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position,
                            const float* x, const float* table, float* y) = 0;
  virtual void position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                             std::int64_t first_position, const float* dy, float* d_table) = 0;  // adds
  // Rotary embedding of queries and keys of packed qkv, in place; half-split pairs (i, i + head_dim / 2) as Llama,
  // base 10000. backward: the inverse rotation.
  virtual void rope(const AttentionShape& s, bool backward, float* qkv) = 0;

  // Rows [first_row, first_row + rows) of the whole table; other ids give zero and no gradient.
  virtual void embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                 const std::int32_t* ids, const float* table, float* y) = 0;
  virtual void embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                  const float* dy, const std::int32_t* ids, float* d_table) = 0;  // adds

  // Columns [first_col, first_col + cols) of the whole vocabulary, of which the first valid_cols count. targets are
  // whole indices. stats [rows, 2]: maximum, sum of exponentials.
  virtual void cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale,
                                     const float* logits, const std::int32_t* targets, float* stats, float* loss) = 0;
  virtual void cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                                 const float* logits, float* max) = 0;
  virtual void cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                     std::int64_t first_col, const float* logits, const std::int32_t* targets,
                                     const float* max, float* sums) = 0;
  virtual void cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) = 0;  // adds to loss
  // (softmax - one_hot) * scale. `max` and `sum` are read with stride: stats (2, 2) or max (1) and sums (2).
  virtual void cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                      std::int64_t first_col, double scale, const float* logits,
                                      const std::int32_t* targets, const float* max, std::int64_t max_stride,
                                      const float* sum, std::int64_t sum_stride, float* d_logits) = 0;

  // Images [batch, channels, height, width].
  virtual void conv_forward(const ConvShape& s, const float* x, const float* w, const float* bias, float* y) = 0;
  virtual void conv_backward_input(const ConvShape& s, const float* dy, const float* w, float* dx) = 0;
  virtual void conv_backward_weight(const ConvShape& s, const float* dy, const float* x, float* dw, float* d_bias) = 0;
  virtual void pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                            std::int64_t window, const float* x, float* y, std::int32_t* argmax) = 0;
  virtual void pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                             std::int64_t window, const float* dy, const std::int32_t* argmax, float* dx) = 0;

  virtual void adamw(std::int64_t n, const AdamW& o, const float* grad, float grad_scale, float* param, float* exp_avg,
                     float* exp_avg_sq) = 0;
  virtual void sgd(std::int64_t n, const Sgd& o, const float* grad, float grad_scale, float* param,
                   float* momentum) = 0;
  virtual double sum_squares(std::int64_t n, const float* x) = 0;
};

// `threads` of the calling process work on each call (1: the caller alone).
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace rehearse::kernels
