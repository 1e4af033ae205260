// What a device can compute: one interface, implemented for the CPU (cpu/, Eigen) and for GPUs (cuda/). It knows
// tensors, never plans. Calls are made from one thread at a time per Device object, which is one stream: a CPU has done
// a call when it returns (and may use several threads inside), a GPU has queued it. Pointers are device memory,
// contiguous and row-major, never aliasing unless the comment allows it.
//
// Operands that may be of half precision are In and Out, which carry their type; a call takes any mix of f32, bf16 and
// f16 in them that a program can hold (sim/program/op.h), computes in fp32 (matrix products: the operands' own type,
// sums in fp32) and rounds to nearest even what it writes. Plain float* is always fp32.
//
// Layout: activations [sequence, micro_batch, width]; rows = sequence * micro_batch. Packed qkv is
// [rows, kv_heads, heads / kv_heads + 2, head_dim] (a group's queries, its key, its value). Weights are [out, in].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "kernels/attention_shapes.h"
#include "kernels/cpu_only_calls.h"
#include "kernels/expert_shapes.h"
#include "kernels/operands.h"
#include "kernels/whole_tensor_rules.h"
#include "sim/base/gradient_code.h"

namespace rehearse::kernels {

// What changes from step to step, in device memory, written before each step: so launches that were recorded once (a
// CUDA graph) can be replayed.
struct StepValues {
  std::int64_t step = 0;            // from 0
  std::int64_t first_sequence = 0;  // of the global batch, since the run began
  float lr = 0;
  float correction1 = 1, correction2 = 1;  // 1 - beta1^(step + 1), 1 - beta2^(step + 1): Kingma and Ba 2014, alg. 1
};

// C[m, n] (+)= op(A) op(B) (+ bias[n]). op(A) is [m, k] (stored [k, m] if transpose_a), op(B) is [k, n] ([n, k] if
// transpose_b).
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
};

// Which elements of the whole model a dropout mask is about, so that the mask does not depend on the split: an element
// is (sequence of the global batch, position, column). For attention the column is (head, key position). Keyed by
// mix_key(mix_key(seed, step->step), site); sequence i of the micro-batch is step->first_sequence + first_sequence + i.
struct DropoutSite {
  double probability = 0;  // of being dropped; kept values are scaled by 1 / (1 - probability)
  std::uint64_t seed = 0;
  std::uint64_t site = 0;            // place in the model
  const StepValues* step = nullptr;  // device memory
  std::int64_t first_sequence = 0;   // of the micro-batch, counted from the step's first
  std::int64_t micro_batch = 1;
  std::int64_t first_position = 0;  // of the first row (sequence parallel)
  std::int64_t first_head = 0;      // attention: of this rank
};

// Pieces of `cols` elements: piece (i, j), i < outer and j < inner, begins at first + i * outer_stride + j *
// inner_stride.
struct StridedCopy {
  struct Strides {
    std::int64_t outer = 0, inner = 0, first = 0;
  };
  std::int64_t outer = 1, inner = 1, cols = 0;
  Strides from, to;
};

struct ConvShape {
  std::int64_t batch = 0, c_in = 0, c_out = 0, height = 0, width = 0, kernel = 3, stride = 1, pad = 1;
  std::int64_t groups = 1;  // both c_in and c_out divide by it; w [c_out, c_in / groups, kernel, kernel]
};

// Max pooling of images [batch, channels, height, width]; padding never is the largest.
struct PoolShape {
  std::int64_t batch = 0, channels = 0, height = 0, width = 0, window = 2, stride = 2, pad = 0;

  std::int64_t out_height() const { return (height + 2 * pad - window) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * pad - window) / stride + 1; }
};

// Of x [batch, channels, pixels]; `count`: elements of a channel that are in the sums.
struct BatchNormShape {
  std::int64_t batch = 0, channels = 0, pixels = 1, count = 0;
  double eps = 1e-5;
};

// lr and bias corrections are *step's. Of moments of 8 bits: the largest absolute value of each block of kMomentBlock
// elements (sim/base/moment_codes.h); device memory, read and written.
struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  const StepValues* step = nullptr;  // device memory
  float *exp_avg_largest = nullptr, *exp_avg_sq_largest = nullptr;
};
struct Sgd {
  double momentum = 0, weight_decay = 0;
  const StepValues* step = nullptr;  // device memory
  float* momentum_largest = nullptr;
};
// Of sim/program/op.h, EmbeddingBags: a feature's table, or its gradient, [rows, cols]; sums [rows] of rowwise Adagrad.
struct BagTable {
  std::int64_t rows = 0, lookups = 1;
  Out values;
  float* sums = nullptr;
};
struct BagShape {
  std::int64_t slices = 1, batch = 0, cols = 0;
  bool mean = false;
};
// The step of the rows that were looked up: with sums rowwise Adagrad, else plain. lr is *step's.
struct SparseRule {
  double eps = 1e-8;
  const StepValues* step = nullptr;  // device memory
};
// Of sim/program/op.h, Pairs.
struct PairShape {
  std::int64_t batch = 0, vectors = 0, cols = 0;
  std::int64_t pairs() const { return vectors * (vectors - 1) / 2; }
};
// A run of elements of a flat buffer.
struct Range {
  std::int64_t offset = 0, elements = 0;
};

// Of sim/program/op.h, OuterStep::update: momentum `mu`, where there is one.
struct Outer {
  std::int64_t workers = 1;
  double lr = 1, mu = 0;
};

// Of sim/program/op.h, Muon: `matrices` matrices [rows, cols], whose rows may come in `blocks` runs each. lr is
// *step's. Of a matrix that is cut into `parts` this is part `own`.
struct Muon {
  std::int64_t elements = 0, matrices = 1, rows = 0, cols = 0, blocks = 1, apart = 0, first = 0;
  std::int64_t offset = 0, parts = 1, own = 0;
  bool by_columns = false;
  double momentum = 0, weight_decay = 0;
  const StepValues* step = nullptr;  // device memory
};

// Dynamic loss scaling (fp16): Micikevicius et al. 2017 (arXiv 1710.03740), with the constants of torch.amp.GradScaler.
struct LossScaleRule {
  float growth = 2, backoff = 0.5F;
  std::int64_t interval = 2000;  // steps without overflow before the scale grows
};

// gelu: tanh form, as GPT-2. tanh, sigmoid: their backward reads what forward gave in the place of x.
enum class Unary : unsigned char { gelu, relu, squared_relu, tanh, sigmoid, silu };

class Device : public CpuOnlyCalls {
 public:
  // Whether calls may return before they are done, so that the host cannot read what they give.
  virtual bool queues() const { return false; }

  virtual void gemm(const Gemm& shape, In a, In b, In bias, Out c) = 0;
  // Products that do more at their end: what the calls below do one after the other, which a device may do in one
  // kernel; it then rounds once where these round twice. x [m, n] is y's or c's type.
  // x = op(A) op(B) (+ bias), y = gelu(x).
  virtual void gemm_gelu(const Gemm& shape, In a, In b, In bias, Out x, Out y) {
    gemm(shape, a, b, bias, x);
    activation_forward(Unary::gelu, shape.m * shape.n, x, y);
  }
  // c = op(A) op(B) times gelu's slope at x.
  virtual void gemm_gelu_backward(const Gemm& shape, In a, In b, In x, Out c) {
    gemm(shape, a, b, nullptr, c);
    activation_backward(Unary::gelu, shape.m * shape.n, c, x, c);
  }
  // As gemm, and d_bias [m] += the sum of each row of op(A), where A is transposed: stored [k, m].
  virtual void gemm_bias_grad(const Gemm& shape, In a, In b, Out c, Out d_bias) {
    bias_grad(shape.k, shape.m, a, d_bias);
    gemm(shape, a, b, nullptr, c);
  }

  // Attention over packed qkv; softmax scale 1 / sqrt(head_dim). logsumexp [rows, heads].
  virtual void flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out,
                             float* logsumexp) = 0;
  virtual void flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                              const float* logsumexp, Out d_qkv) = 0;
  // The same of queries and keys that are `part`'s; keys and values are kv [key rows, kv_heads, head_dim + value_dim].
  // d_q [rows, heads * head_dim].
  virtual void context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In qkv,
                               In kv, Out out, float* logsumexp) = 0;
  virtual void context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In d_out,
                                In qkv, In kv, In out, const float* logsumexp, Out d_q, Out d_kv) = 0;
  // The attention of one token of each sequence, seq = 1, to the keys and values that are kept of it. Not on GPUs yet.
  virtual void cached_attention(const AttentionShape& s, std::span<const CachedSequence> sequences, In qkv, Out out) {
    no_kernel(s, sequences, qkv, out);
  }
  // Unfused parts; P, S, D and their gradients are [micro_batch, heads, seq, keys], keys = seq of packed qkv.
  virtual void attention_scores(const AttentionShape& s, In qkv, Out scores) = 0;  // Q K^T, not scaled
  // The same of queries and keys that are operands of their own. Not on GPUs yet.
  virtual void cross_attention_scores(const AttentionShape&, In /*q*/, In /*kv*/, Out /*scores*/) {
    throw std::logic_error("this device has no attention to another sequence");
  }
  virtual void attention_softmax(const AttentionShape& s, In scores, Out p) = 0;  // scaled, masked
  // Softmax of scores + bias, not scaled; the bias is table [heads, bias_buckets] by distance. Not on GPUs yet.
  virtual void attention_biased_softmax(const AttentionShape&, In /*scores*/, In /*table*/, Out /*p*/) {
    throw std::logic_error("this device has no softmax with a bias");
  }
  // d_table += the sums of d_s by head and bucket. Not on GPUs yet.
  virtual void attention_bias_gradient(const AttentionShape&, In /*d_s*/, Out /*d_table*/) {
    throw std::logic_error("this device has no gradient of a bias of scores");
  }
  virtual void attention_dropout(const AttentionShape& s, const DropoutSite& dropout, In p, Out d,
                                 std::uint8_t* mask) = 0;
  virtual void attention_context(const AttentionShape& s, In d, In qkv, Out out) = 0;
  virtual void attention_context_backward_probs(const AttentionShape& s, In d_out, In qkv, Out d_d) = 0;
  virtual void attention_context_backward_value(const AttentionShape& s, In d_out, In d,
                                                Out d_qkv) = 0;  // writes the value part
  virtual void attention_dropout_backward(const AttentionShape& s, double probability, In d_d, const std::uint8_t* mask,
                                          Out d_p) = 0;
  virtual void attention_softmax_backward(const AttentionShape& s, In d_p, In p, Out d_s) = 0;
  // With softcap, of the scores before they are scaled.
  virtual void attention_capped_softmax_backward(const AttentionShape& s, In d_p, In p, In scores, Out d_s) {
    no_kernel(s, d_p, p, scores, d_s);
  }
  virtual void attention_scores_backward_query(const AttentionShape& s, In d_s, In qkv,
                                               Out d_qkv) = 0;  // writes the query part
  virtual void attention_scores_backward_key(const AttentionShape& s, In d_s, In qkv,
                                             Out d_qkv) = 0;  // writes the key part

  // stats: layer [rows, 2] (mean, 1 / deviation), rms [rows, 1] (1 / root mean square). beta may be null.
  virtual void norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta, Out y,
                            float* stats) = 0;
  virtual void norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                   In gamma, In residual, Out dx) = 0;
  virtual void norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                    Out d_gamma, Out d_beta) = 0;  // adds

  // RMSNorm times 1 + gamma; its weight's gradient is that of norm_backward_weight. Not on GPUs yet, nor is what
  // follows of heads.
  virtual void zero_centered_norm_forward(std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, Out y,
                                          float* stats) {
    no_kernel(rows, cols, eps, x, gamma, y, stats);
  }
  virtual void zero_centered_norm_backward_input(std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                                 In gamma, In residual, Out dx) {
    no_kernel(rows, cols, dy, x, stats, gamma, residual, dx);
  }
  // qkv and d_qkv in place; raw: queries and keys as they were.
  virtual void head_norm_forward(const HeadNormShape& s, In gamma_q, In gamma_k, Out qkv, Out raw, float* stats) {
    no_kernel(s, gamma_q, gamma_k, qkv, raw, stats);
  }
  virtual void head_norm_backward_input(const HeadNormShape& s, In raw, const float* stats, In gamma_q, In gamma_k,
                                        Out d_qkv) {
    no_kernel(s, raw, stats, gamma_q, gamma_k, d_qkv);
  }
  virtual void head_norm_backward_weight(const HeadNormShape& s, In d_qkv, In raw, const float* stats, Out d_gamma_q,
                                         Out d_gamma_k) {
    no_kernel(s, d_qkv, raw, stats, d_gamma_q, d_gamma_k);
  }

  virtual void activation_forward(Unary fn, std::int64_t n, In x, Out y) = 0;
  virtual void activation_backward(Unary fn, std::int64_t n, In dy, In x, Out dx) = 0;
  // gate_up [rows, 2, cols]; with `up` [rows, cols], which may be null, gate_up is the gate alone [rows, cols].
  virtual void swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) = 0;
  virtual void swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) = 0;
  // Each row times weights [rows]; backward also gives d_weights [rows].
  virtual void weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, const float* weights,
                                       Out y) = 0;
  virtual void weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, const float* weights,
                                        Out d_gate_up, float* d_weights) = 0;
  // The same with gelu (tanh form) in the place of silu. Not on GPUs yet.
  virtual void geglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) {
    no_kernel(rows, cols, gate_up, up, y);
  }
  virtual void geglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) {
    no_kernel(rows, cols, dy, gate_up, up, d_gate_up);
  }

  // 8-bit copies; not on GPUs yet.
  // *amax = the largest absolute value of x.
  virtual void fp8_amax(std::int64_t n, In x, float* amax) { no_8_bits(n, x, amax); }
  // amax[cols]: of each column of x [rows, cols].
  virtual void fp8_column_amax(std::int64_t rows, std::int64_t cols, In x, float* amax) {
    no_8_bits(rows, cols, x, amax);
  }
  // x [rows, cols] by rows and by columns: `layout` with columns false and true; either may be null. Blocks have scales
  // of their own, and `scale` is not used, but where `layout` is of columns, a block each (row is null): `largest` is
  // f32 [cols] then, of each.
  virtual void fp8_cast(const Fp8Layout& layout, In x, const Fp8Scale& scale, Out row, Out column) {
    no_8_bits(layout, x, scale, row, column);
  }
  // What a copy stands for: x [rows, cols] as `layout` says, y row by row.
  virtual void fp8_widen(const Fp8Layout& layout, In x, Out y) { no_8_bits(layout, x, y); }
  // A copy by rows with scales of blocks -> the copy by columns of what it stands for. `layout` is of x.
  virtual void fp8_recast(const Fp8Layout& layout, In x, Out y) { no_8_bits(layout, x, y); }
  // y = the transpose of x [rows, cols], of one type.
  virtual void fp8_transpose(std::int64_t rows, std::int64_t cols, In x, Out y) { no_8_bits(rows, cols, x, y); }
  // As norm_forward, and y is cast as it comes.
  virtual void norm_forward_fp8(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta,
                                const Fp8Scale& scale, Out y, float* stats) {
    no_8_bits(rms, rows, cols, eps, x, gamma, beta, scale, y, stats);
  }
  // Delayed scaling of n tensors. history [n, 1 + updates]: how many there have been, and the last ones' amax, around.
  // A tensor that was cast since (its amax is above 0, and a number) has its amax put there; window [n] is the largest
  // of its history. amax becomes 0.
  virtual void fp8_update(std::int64_t n, std::int64_t updates, float* amax, float* history, float* window) {
    no_8_bits(n, updates, amax, history, window);
  }

  virtual void add(std::int64_t n, In a, In b, Out y) = 0;
  virtual void accumulate(std::int64_t n, In x, Out y) = 0;
  virtual void copy(std::int64_t n, In x, Out y) = 0;                // also casts
  virtual void copy_strided(const StridedCopy& s, In x, Out y) = 0;  // of one type
  virtual void fill(std::int64_t n, float value, Out y) = 0;
  virtual void scale(std::int64_t n, float value, In x, Out y) = 0;  // y may be x
  // y = residual + dropout(x + bias); bias, mask may be null.
  virtual void bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, In x, In bias,
                                In residual, Out y, std::uint8_t* mask) = 0;
  virtual void dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, In x, Out y,
                       std::uint8_t* mask) = 0;
  virtual void dropout_backward(std::int64_t n, double probability, In dy, const std::uint8_t* mask, Out dx) = 0;
  virtual void bias_grad(std::int64_t rows, std::int64_t cols, In dy, Out d_bias) = 0;  // adds
  // Rows are positions first_position, ... each micro_batch times.
  virtual void add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position,
                            In x, In table, Out y) = 0;
  virtual void position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                             std::int64_t first_position, In dy, Out d_table) = 0;  // adds
  // Rotary embedding of the first n = rotated() columns of queries and keys of packed qkv, in place; half-split pairs
  // (i, i + n / 2) as Llama and GPT-NeoX, by s.rotation. Rows are positions first_position, ... backward: the
  // inverse rotation.
  virtual void rope(const AttentionShape& s, std::int64_t first_position, bool backward, Out qkv) = 0;
  // The last `rope` columns of queries, and k_rope, which all heads' keys end with, are rotated by s.rotation.
  // backward: d_k_rope is the sum over the heads.
  virtual void latent_heads(const LatentShape& s, std::int64_t first_position, In q, In kv, In k_rope, Out qkv) = 0;
  virtual void latent_heads_backward(const LatentShape& s, std::int64_t first_position, In d_qkv, Out d_q, Out d_kv,
                                     Out d_k_rope) = 0;

  // Experts. weights [tokens, top_k]: scores of the experts `chosen` [tokens, top_k], scaled to add to 1.
  virtual void router_gate(const RouterShape& s, In logits, float* weights, std::int32_t* chosen) = 0;
  // Rows in the order of experts; of one expert first choices before second ones, each in the order of tokens. loads
  // [experts]: how often each was chosen.
  virtual void router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads) = 0;
  // Scores, divided by their sum, have aux * *loss_scale * loads as a gradient too (loads, loss_scale may be null).
  virtual void router_gate_backward(const RouterShape& s, double aux, const float* d_weights, In logits,
                                    const std::int32_t* chosen, const float* loads, const float* loss_scale,
                                    Out d_logits) = 0;
  // Weights of the experts that tokens are to be sent to.
  virtual void router_weights(const RouterShape& s, In logits, const std::int32_t* chosen, float* weights) {
    no_kernel(s, logits, chosen, weights);
  }
  // Of devices that queue their calls; where calls are done when they return the host's loops do it
  // (execute/rank/expert_rows.h). counts [sources, experts]; places [rows]: of each the row where it is sorted by own
  // expert, then source, -1 where none came; loads [own].
  virtual void receive_rows(const ReceivedRows& s, const float* counts, std::int32_t* places, float* loads) {
    no_kernel(s, counts, places, loads);
  }
  // places [tokens, top_k]: rows sorted by own expert, then token; -1: of other experts. loads [own].
  virtual void place_own_rows(const OwnRows& s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
    no_kernel(s, chosen, places, loads);
  }
  virtual void permute(const PermuteShape& s, In x, const std::int32_t* places, Out y) = 0;  // 0 where no token is
  // weights [tokens, top_k]; null: all 1, which is permute's backward.
  virtual void unpermute(const PermuteShape& s, In y, const std::int32_t* places, const float* weights, Out out) = 0;
  virtual void unpermute_backward(const PermuteShape& s, In d_out, In y, const std::int32_t* places,
                                  const float* weights, Out d_y, float* d_weights) = 0;
  virtual void grouped_gemm(const GroupedShape& s, In a, In b, const float* loads, Out c) = 0;  // loads may be null

  // Rows [first_row, first_row + rows) of the whole table; other ids give zero and no gradient.
  virtual void embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                 const std::int32_t* ids, In table, Out y) = 0;
  virtual void embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                  In dy, const std::int32_t* ids, Out d_table) = 0;  // adds

  // Columns [first_col, first_col + cols) of the whole vocabulary, of which the first valid_cols count. targets are
  // whole indices; -1 leaves the row out, with no loss and a gradient of 0 (and sums of 1, in the first columns, and
  // 0). stats [rows, 2]: maximum, sum of exponentials.
  virtual void cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale,
                                     In logits, const std::int32_t* targets, float* stats, float* loss) = 0;
  virtual void cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                                 In logits, float* max) = 0;
  virtual void cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                     std::int64_t first_col, In logits, const std::int32_t* targets, const float* max,
                                     float* sums) = 0;
  virtual void cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) = 0;  // adds to loss
  // (softmax - one_hot) * scale * *loss_scale (device memory; null: 1). `max` and `sum` are read with stride: stats (2,
  // 2) or max (1) and sums (2).
  virtual void cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols,
                                      std::int64_t first_col, double scale, const float* loss_scale, In logits,
                                      const std::int32_t* targets, const float* max, std::int64_t max_stride,
                                      const float* sum, std::int64_t sum_stride, Out d_logits) = 0;

  // x [rows, cols]: each row times its factor. Not on GPUs yet.
  virtual void scale_rows(std::int64_t rows, std::int64_t cols, const float* factors, Out x) {
    no_kernel(rows, cols, factors, x);
  }
  // loss [1] += scale * sum of (x - target)^2.
  virtual void mse_forward(std::int64_t n, double scale, In x, const float* target, float* loss) = 0;
  // dx = 2 * scale * *loss_scale * (x - target) (loss_scale in device memory; null: 1); dx may be x.
  virtual void mse_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target,
                            Out dx) = 0;

  // Images [batch, channels, height, width].
  virtual void conv_forward(const ConvShape& s, In x, In w, In bias, Out y) = 0;
  virtual void conv_backward_input(const ConvShape& s, In dy, In w, Out dx) = 0;
  virtual void conv_backward_weight(const ConvShape& s, In dy, In x, Out dw, Out d_bias) = 0;
  virtual void pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                            std::int64_t window, In x, Out y, std::int32_t* argmax) = 0;
  virtual void pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                             std::int64_t window, In dy, const std::int32_t* argmax, Out dx) = 0;

  // Windows that overlap or reach beyond the image; bias and d_bias of convolutions may be null with these models. Not
  // on GPUs yet, nor are the calls down to batch_norm_backward_input.
  virtual void max_pool_forward(const PoolShape& s, In x, Out y, std::int32_t* argmax) { no_kernel(s, x, y, argmax); }
  virtual void max_pool_backward(const PoolShape& s, In dy, const std::int32_t* argmax, Out dx) {
    no_kernel(s, dy, argmax, dx);
  }
  // The mean over the pixels of each of `planes` maps.
  virtual void average_pool_forward(std::int64_t planes, std::int64_t pixels, In x, Out y) {
    no_kernel(planes, pixels, x, y);
  }
  virtual void average_pool_backward(std::int64_t planes, std::int64_t pixels, In dy, Out dx) {
    no_kernel(planes, pixels, dy, dx);
  }
  // Each of `planes` maps times its factor; backward: df [planes] too.
  virtual void channel_scale_forward(std::int64_t planes, std::int64_t pixels, In x, In f, Out y) {
    no_kernel(planes, pixels, x, f, y);
  }
  virtual void channel_scale_backward(std::int64_t planes, std::int64_t pixels, In dy, In x, In f, Out dx, Out df) {
    no_kernel(planes, pixels, dy, x, f, dx, df);
  }
  // Of sim/program/op.h, BatchNorm. sums, d_sums [2, channels] are written; d_gamma, d_beta are added to.
  virtual void batch_norm_sums(const BatchNormShape& s, In x, float* sums) { no_kernel(s, x, sums); }
  virtual void batch_norm_normalise(const BatchNormShape& s, In x, const float* sums, In gamma, In beta, Out y) {
    no_kernel(s, x, sums, gamma, beta, y);
  }
  virtual void batch_norm_backward_sums(const BatchNormShape& s, In dy, In x, const float* sums, float* d_sums) {
    no_kernel(s, dy, x, sums, d_sums);
  }
  virtual void batch_norm_backward_weight(const BatchNormShape& s, const float* d_sums, Out d_gamma, Out d_beta) {
    no_kernel(s, d_sums, d_gamma, d_beta);
  }
  virtual void batch_norm_backward_input(const BatchNormShape& s, In dy, In x, const float* sums, In gamma,
                                         const float* d_sums, Out dx) {
    no_kernel(s, dy, x, sums, gamma, d_sums, dx);
  }

  // Of sim/program/op.h, EmbeddingBags, Pairs and BinaryCrossEntropy (which mse_forward and mse_backward are like). Not
  // on GPUs yet.
  virtual void embedding_bags_forward(const BagShape& s, std::span<const BagTable> tables, const std::int32_t* ids,
                                      Out y) {
    no_kernel(s, tables, ids, y);
  }
  virtual void embedding_bags_backward(const BagShape& s, std::span<const BagTable> gradients, In dy,
                                       const std::int32_t* ids) {
    no_kernel(s, gradients, dy, ids);
  }
  virtual void embedding_bags_update(const BagShape& s, const SparseRule& rule, std::span<const BagTable> tables, In dy,
                                     const std::int32_t* ids) {
    no_kernel(s, rule, tables, dy, ids);
  }
  virtual void pairs_forward(const PairShape& s, In products, In x, Out y) { no_kernel(s, products, x, y); }
  virtual void pairs_backward(const PairShape& s, In dy, Out d_products, Out dx) { no_kernel(s, dy, d_products, dx); }
  virtual void bce_forward(std::int64_t n, double scale, In x, const float* target, float* loss) {
    no_kernel(n, scale, x, target, loss);
  }
  virtual void bce_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target, Out dx) {
    no_kernel(n, scale, loss_scale, x, target, dx);
  }

  // `coefficient` (device memory; null: 1) multiplies the gradient; not a number: the step is skipped, nothing changes.
  // `master` is null if the parameter is its own fp32 copy; else param is written as the master's rounding. Moments may
  // be of 16 bits, or of 8 (u8), both of one type: the parameter is updated by what they are before they are rounded.
  // With 8 bits n is a multiple of kMomentBlock.
  virtual void adamw(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out param, float* master,
                     Out exp_avg, Out exp_avg_sq) = 0;
  virtual void sgd(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out param, float* master,
                   Out momentum) = 0;
  // row [rows] (null with rows = 0), col [cols]: running means of the gradient's squares.
  virtual void adafactor(const Adafactor& o, In grad, const float* coefficient, Out param, float* master, float* row,
                         float* col) = 0;
  // Of sim/program/op.h, AdafactorParts: `n` elements with what tensors are of them. sums [count], means as the tensors
  // say, squares [tensors].
  virtual void adafactor_sums(std::int64_t n, std::span<const AdafactorTensor> tensors, In grad,
                              const float* coefficient, std::int64_t count, float* sums) {
    no_kernel(n, tensors, grad, coefficient, count, sums);
  }
  virtual void adafactor_squares(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                                 const float* coefficient, const float* sums, float* means, float* squares) {
    no_kernel(n, o, tensors, grad, coefficient, sums, means, squares);
  }
  virtual void adafactor_apply(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                               const float* coefficient, const float* means, const float* squares, Out param,
                               float* master) {
    no_kernel(n, o, tensors, grad, coefficient, means, squares, param, master);
  }
  // Of the tensor's elements those of the matrices change. Not on GPUs yet.
  virtual void muon(const Muon& o, In grad, const float* coefficient, Out param, float* master, float* momentum) {
    no_kernel(o, grad, coefficient, param, master, momentum);
  }
  // The first step alone, of all elements: u = g + mu momentum; and the others, with u of all parts.
  virtual void muon_momentum(const Muon& o, In grad, const float* coefficient, float* momentum, Out u) {
    no_kernel(o, grad, coefficient, momentum, u);
  }
  virtual void muon_update(const Muon& o, In u, Out param, float* master) { no_kernel(o, u, param, master); }
  // The others but for the last, which is apply's.
  virtual void muon_orthogonal(const Muon& o, In u, Out x) { no_kernel(o, u, x); }
  virtual void muon_apply(const Muon& o, In x, const float* coefficient, Out param, float* master) {
    no_kernel(o, x, coefficient, param, master);
  }
  // Gradients as they go over the wire (sim/base/gradient_code.h). residual [elements] (null: none) is added to x
  // first, and is then what was not sent of the sum. packed: code.bytes(). Not on GPUs yet.
  virtual void compress(const GradientCode& code, const GradientDraw& draw, In x, float* residual,
                        std::uint8_t* packed) {
    no_kernel(code, draw, x, residual, packed);
  }
  // The same, of what sim/program/op.h's Compress has with momentum correction, of the largest: u = mu u + coefficient
  // x (null: 1), which is then compressed with the residual, and is 0 in the places that were sent.
  virtual void compress_corrected(const GradientCode& code, const GradientDraw& draw, double mu, In x,
                                  const float* coefficient, float* momentum, float* residual, std::uint8_t* packed) {
    no_kernel(code, draw, mu, x, coefficient, momentum, residual, packed);
  }
  // Of sim/program/op.h, LowRank. x [rows, rank]. Ranges {offset, elements} of the gradients, in order. Not on GPUs
  // yet.
  virtual void orthogonalise(std::int64_t rows, std::int64_t rank, double epsilon, float* x) {
    no_kernel(rows, rank, epsilon, x);
  }
  virtual void keep_rest(std::int64_t n, std::int64_t members, std::span<const Range> rest, const float* gradients,
                         float* residual) {
    no_kernel(n, members, rest, gradients, residual);
  }
  // x = the sum of what `members` sent, in their order; packed: of one after the other.
  virtual void decompress(const GradientCode& code, const GradientDraw& draw, std::int64_t members,
                          const std::uint8_t* packed, Out x) {
    no_kernel(code, draw, members, packed, x);
  }
  // Of sim/program/op.h, OuterStep. Not on GPUs yet. With a master copy the parameter is written as its cast.
  virtual void outer_mean(std::int64_t n, std::int64_t workers, const float* sum, Out param, float* master) {
    no_kernel(n, workers, sum, param, master);
  }
  virtual void outer_difference(std::int64_t n, const float* value, const float* outer, float* difference) {
    no_kernel(n, value, outer, difference);
  }
  virtual void outer_update(std::int64_t n, const Outer& o, const float* sum, float* outer, float* momentum, Out param,
                            float* master) {
    no_kernel(n, o, sum, outer, momentum, param, master);
  }
  // Of sim/program/op.h, Lamb: `n` elements with what the tensors are of them. squares [tensors, 2]. Not on GPUs yet.
  virtual void lamb_moments(std::int64_t n, const Lamb& o, std::span<const LambTensor> tensors, In grad,
                            const float* coefficient, In value, float* exp_avg, float* exp_avg_sq, float* u,
                            float* squares) {
    no_kernel(n, o, tensors, grad, coefficient, value, exp_avg, exp_avg_sq, u, squares);
  }
  virtual void lamb_apply(std::int64_t n, const Lamb& o, std::span<const LambTensor> tensors, const float* u,
                          const float* squares, const float* coefficient, Out param, float* master) {
    no_kernel(n, o, tensors, u, squares, coefficient, param, master);
  }
  // counted [2] grows by the targets that are not negative; loss [1] is divided by the first of counted (0: becomes 0).
  virtual void count_targets(std::int64_t n, const std::int32_t* targets, float* counted) = 0;
  virtual void mean_of_counted(const float* counted, float* loss) = 0;
  virtual void sum_squares(std::int64_t n, In x, float* sum) = 0;  // adds to sum [1]
  // coefficient [1] = min(1, max_norm / (sqrt(sum) / s + 1e-6)) / s with s = *loss_scale (null: 1); not a number if sum
  // is not finite. max_norm 0: no clipping. 0 if s is.
  virtual void clip_coefficient(double max_norm, const float* sum, const float* loss_scale, float* coefficient) = 0;
  // state [2]: the scale, and how many steps it has stood. A coefficient that is not a number halves it.
  virtual void update_loss_scale(const LossScaleRule& rule, const float* coefficient, float* state) = 0;

 private:
  template <class... T>
  [[noreturn]] static void no_kernel(const T&...) {
    throw std::logic_error("this device has no kernel for this layer");
  }
  template <class... T>
  [[noreturn]] static void no_8_bits(const T&...) {
    throw std::logic_error("this device has no kernels for 8-bit copies");
  }
};

// `threads` of the calling process work on each call (1: the caller alone).
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace rehearse::kernels
