// The CPU's kernels: fp32, one small thread pool a device, vectorised for REHEARSE_ARCH. Every call gives the same bits
// on the same device whatever else the machine runs: work is cut by shape and thread count only, and sums that cross
// rows are taken in row order. The kernels of a kind are in one file each: gemm, flash_attention, cached_attention,
// attention (unfused), norm, elementwise, dropout, embedding (also positions and rope), experts, cross_entropy, mse,
// conv, pool, batch_norm, optimizer, compress, low_rank, state_space, fp8. What they compute is said in
// kernels/device.h, whose interface cpu_device.h puts over them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"
#include "sim/base/state_space.h"

namespace rehearse::kernels::cpu {

constexpr std::int64_t kGrain = 16384;  // elements below which a second thread does not pay

namespace flash {
struct Flash;
struct Gradients;
}  // namespace flash

class CpuKernels {
 public:
  explicit CpuKernels(int threads) : pool_(threads), scratch_(static_cast<std::size_t>(threads)) {}

  void gemm(const Gemm& shape, const float* a, const float* b, const float* bias, float* c);
  void flash_forward(const AttentionShape& s, const DropoutSite& dropout, const float* qkv, float* out,
                     float* logsumexp);
  void flash_backward(const AttentionShape& s, const DropoutSite& dropout, const float* d_out, const float* qkv,
                      const float* out, const float* logsumexp, float* d_qkv);
  void context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, const float* qkv,
                       const float* kv, float* out, float* logsumexp);
  void context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout,
                        const float* d_out, const float* qkv, const float* kv, const float* out, const float* logsumexp,
                        float* d_q, float* d_kv);
  // A sequence's keys and values where `sequences` says, as floats.
  void cached_attention(const AttentionShape& s, std::span<const CachedSequence> sequences, const float* qkv,
                        float* out);
  // Operands of queries and of keys: packed qkv both, or with s.keys q and kv.
  void attention_scores(const AttentionShape& s, const float* queries, const float* keys, float* scores);
  void attention_softmax(const AttentionShape& s, const float* scores, float* p);
  void attention_biased_softmax(const AttentionShape& s, const float* scores, const float* table, float* p);
  void attention_bias_gradient(const AttentionShape& s, const float* d_s, float* d_table);
  void attention_dropout(const AttentionShape& s, const DropoutSite& dropout, const float* p, float* d,
                         std::uint8_t* mask);
  void attention_context(const AttentionShape& s, const float* d, const float* qkv, float* out);
  void attention_context_backward_probs(const AttentionShape& s, const float* d_out, const float* qkv, float* d_d);
  void attention_context_backward_value(const AttentionShape& s, const float* d_out, const float* d, float* d_qkv);
  void attention_dropout_backward(const AttentionShape& s, double probability, const float* d_d,
                                  const std::uint8_t* mask, float* d_p);
  void attention_softmax_backward(const AttentionShape& s, const float* d_p, const float* p, float* d_s);
  void attention_capped_softmax_backward(const AttentionShape& s, const float* d_p, const float* p, const float* scores,
                                         float* d_s);
  void attention_scores_backward_query(const AttentionShape& s, const float* d_s, const float* qkv, float* d_qkv);
  void attention_scores_backward_key(const AttentionShape& s, const float* d_s, const float* qkv, float* d_qkv);
  void norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, const float* x, const float* gamma,
                    const float* beta, float* y, float* stats);
  void norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                           const float* stats, const float* gamma, const float* residual, float* dx);
  void norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                            const float* stats, float* d_gamma, float* d_beta);
  void head_norm_forward(const HeadNormShape& s, const float* gamma_q, const float* gamma_k, float* qkv, float* raw,
                         float* stats);
  void head_norm_backward_input(const HeadNormShape& s, const float* raw, const float* stats, const float* gamma_q,
                                const float* gamma_k, float* d_qkv);
  void head_norm_backward_weight(const HeadNormShape& s, const float* d_qkv, const float* raw, const float* stats,
                                 float* d_gamma_q, float* d_gamma_k);
  void activation_forward(Unary fn, std::int64_t n, const float* x, float* y);
  void activation_backward(Unary fn, std::int64_t n, const float* dy, const float* x, float* dx);
  void swiglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up, float* y);
  void weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* weights,
                               float* y);
  void weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up,
                                const float* weights, float* d_gate_up, float* d_weights);
  void attention_sinks(const AttentionShape& s, const float* sinks, float* out, float* logsumexp);
  void attention_sink_gradient(const AttentionShape& s, const float* d_out, const float* out, const float* logsumexp,
                               const float* sinks, float* d_sinks);
  void swiglu_oai_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up,
                          const float* weights, float* y);
  void swiglu_oai_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up, const float* up,
                           const float* weights, float* d_gate_up, float* d_weights);
  void weighted_activation_forward(Unary fn, std::int64_t rows, std::int64_t cols, const float* x, const float* weights,
                                   float* y);
  void weighted_activation_backward(Unary fn, std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                                    const float* weights, float* dx, float* d_weights);
  void grouped_bias(const GroupedBiasShape& s, const float* bias, const float* loads, const float* weights, float* y);
  void grouped_bias_backward(const GroupedBiasShape& s, const float* dy, const float* loads, const float* weights,
                             float* d_bias);
  void grouped_bias_weights(const GroupedBiasShape& s, const float* dy, const float* bias, const float* loads,
                            float* d_weights);
  void row_scale(std::int64_t rows, std::int64_t cols, const float* x, const float* weights, float* y);
  void row_scale_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* x, const float* weights,
                          float* dx, float* d_weights);
  // Parts of a Mamba-2 mixer; operands and names as in sim/base/state_space.h.
  void state_space_conv(const StateSpace& s, const float* in, const float* w, const float* b, float* xbc);
  void state_space_conv_backward(const StateSpace& s, const float* d_xbc, const float* in, const float* w,
                                 const float* b, float* d_in, float* dw, float* db);
  void state_space_steps(const StateSpace& s, const float* in, const float* dt_bias, const float* a_log, float* step,
                         float* l);
  // The parts of the gradient of l.
  struct StateSpaceDecays {
    const float *scan, *state, *read, *pass;
  };
  void state_space_steps_backward(const StateSpace& s, const StateSpaceDecays& d_l, const float* d_step,
                                  const float* step, const float* in, const float* dt_bias, const float* a_log,
                                  float* d_in, float* d_dt_bias, float* d_a_log);
  void state_space_gate_backward(const StateSpace& s, const float* dy, const float* in, const float* raw,
                                 const float* xbc, float* d_in, float* d_raw, float* dd);
  void state_space_norm(const StateSpace& s, const float* y, const float* gamma, float* out, float* stats);
  void state_space_norm_backward(const StateSpace& s, const float* d_out, const float* y, const float* stats,
                                 const float* gamma, float* dy, float* d_gamma);
  // The parts of the scan in chunks, and of its gradients.
  void state_space_scan(const StateSpace& s, std::span<const float* const> in, std::span<float* const> out);
  void swiglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up, const float* up,
                       float* d_gate_up);
  void geglu_forward(std::int64_t rows, std::int64_t cols, const float* gate_up, const float* up, float* y);
  void geglu_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* gate_up, const float* up,
                      float* d_gate_up);
  // The largest absolute value.
  float largest(std::int64_t n, const float* x);
  // By rows and by columns, either may be null; `scale` of what has no blocks.
  // known: of a copy by columns with scales of whole ones, the largest value of each; else null.
  void fp8_cast(const Fp8Layout& l, DType type, float scale, const float* x, const float* known, std::uint8_t* row,
                std::uint8_t* column);
  void column_amax(std::int64_t rows, std::int64_t cols, const float* x, float* amax);
  // In 4 bits (fp4.cpp). With a copy by columns that has scales of its own `row` is null, and `largest` is not used.
  // Returns what all elements of the copies are multiplied by when they are read.
  float fp4_cast(const Fp8Layout& l, float largest, const float* x, std::uint8_t* row, std::uint8_t* column);
  float fp4_largest(const Fp8Layout& l, const float* x);  // of what the transform makes of x
  void fp4_widen(const Fp8Layout& l, const std::uint8_t* x, float* y);
  void fp8_transpose(std::int64_t rows, std::int64_t cols, const std::uint8_t* x, std::uint8_t* y);
  void fp8_widen(const Fp8Layout& l, DType type, const std::uint8_t* x, float* y);  // row-major
  void add(std::int64_t n, const float* a, const float* b, float* y);
  void accumulate(std::int64_t n, const float* x, float* y);
  void copy(std::int64_t n, const float* x, float* y);
  void fill(std::int64_t n, float value, float* y);
  void scale(std::int64_t n, float value, const float* x, float* y);
  void scale_rows(std::int64_t rows, std::int64_t cols, const float* factors, float* x);
  void bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, const float* x,
                        const float* bias, const float* residual, float* y, std::uint8_t* mask);
  void dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, const float* x, float* y,
               std::uint8_t* mask);
  void dropout_backward(std::int64_t n, double probability, const float* dy, const std::uint8_t* mask, float* dx);
  void bias_grad(std::int64_t rows, std::int64_t cols, const float* dy, float* d_bias);
  void add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position,
                    const float* x, const float* table, float* y);
  void position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position,
                     const float* dy, float* d_table);
  void rope(const AttentionShape& s, std::int64_t first_position, bool backward, float* qkv);
  void latent_heads(const LatentShape& s, std::int64_t first_position, const float* q, const float* kv,
                    const float* k_rope, float* qkv);
  void latent_heads_backward(const LatentShape& s, std::int64_t first_position, const float* d_qkv, float* d_q,
                             float* d_kv, float* d_k_rope);
  void router_gate(const RouterShape& s, const float* logits, float* weights, std::int32_t* chosen);
  void router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads);
  void router_gate_backward(const RouterShape& s, double aux, const float* d_weights, const float* logits,
                            const std::int32_t* chosen, const float* loads, float* d_logits);
  template <class Element>  // float, or a byte
  void permute(const PermuteShape& s, const Element* x, const std::int32_t* places, Element* y);
  void unpermute(const PermuteShape& s, const float* y, const std::int32_t* places, const float* weights, float* out);
  void unpermute_backward(const PermuteShape& s, const float* d_out, const float* y, const std::int32_t* places,
                          const float* weights, float* d_y, float* d_weights);
  void embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                         const std::int32_t* ids, const float* table, float* y);
  void embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                          const float* dy, const std::int32_t* ids, float* d_table);
  void cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale,
                             const float* logits, const std::int32_t* targets, float* stats, float* loss);
  void cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                         const float* logits, float* max);
  void cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                             const float* logits, const std::int32_t* targets, const float* max, float* sums);
  void cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss);
  void cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                              double scale, const float* logits, const std::int32_t* targets, const float* max,
                              std::int64_t max_stride, const float* sum, std::int64_t sum_stride, float* d_logits);
  double sum_square_differences(std::int64_t n, const float* a, const float* b);
  void mse_backward(std::int64_t n, double scale, const float* x, const float* target, float* dx);
  void conv_forward(const ConvShape& s, const float* x, const float* w, const float* bias, float* y);
  void conv_backward_input(const ConvShape& s, const float* dy, const float* w, float* dx);
  void conv_backward_weight(const ConvShape& s, const float* dy, const float* x, float* dw, float* d_bias);
  void pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                    std::int64_t window, const float* x, float* y, std::int32_t* argmax);
  void pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                     std::int64_t window, const float* dy, const std::int32_t* argmax, float* dx);
  void max_pool_forward(const PoolShape& s, const float* x, float* y, std::int32_t* argmax);
  void max_pool_backward(const PoolShape& s, const float* dy, const std::int32_t* argmax, float* dx);
  void average_pool_forward(std::int64_t planes, std::int64_t pixels, const float* x, float* y);
  void average_pool_backward(std::int64_t planes, std::int64_t pixels, const float* dy, float* dx);
  void channel_scale_forward(std::int64_t planes, std::int64_t pixels, const float* x, const float* f, float* y);
  void channel_scale_backward(std::int64_t planes, std::int64_t pixels, const float* dy, const float* x, const float* f,
                              float* dx, float* df);
  void batch_norm_sums(const BatchNormShape& s, const float* x, float* sums);
  void batch_norm_normalise(const BatchNormShape& s, const float* x, const float* sums, const float* gamma,
                            const float* beta, float* y);
  void batch_norm_backward_sums(const BatchNormShape& s, const float* dy, const float* x, const float* sums,
                                float* d_sums);
  void batch_norm_backward_input(const BatchNormShape& s, const float* dy, const float* x, const float* sums,
                                 const float* gamma, const float* d_sums, float* dx);
  // Moments alone may be of 16 bits, or of 8.
  void adamw(std::int64_t n, const AdamW& o, const float* grad, float grad_scale, float* param, Out exp_avg,
             Out exp_avg_sq);
  void sgd(std::int64_t n, const Sgd& o, const float* grad, float grad_scale, float* param, Out momentum);
  void adafactor(const Adafactor& o, const float* grad, float grad_scale, float* param, float* row, float* col);
  void muon(const Muon& o, const float* grad, float grad_scale, float* param, float* momentum);
  void muon_momentum(const Muon& o, const float* grad, float grad_scale, float* momentum, float* u);
  void muon_update(const Muon& o, const float* u, float* param);
  void muon_orthogonal(const Muon& o, const float* u, float* x);
  void muon_apply(const Muon& o, const float* x, float* param);
  double sum_squares(std::int64_t n, const float* x);
  void outer_mean(std::int64_t n, std::int64_t workers, const float* sum, float* value);
  void outer_difference(std::int64_t n, const float* value, const float* outer, float* difference);
  void outer_update(std::int64_t n, const Outer& o, const float* sum, float* outer, float* momentum, float* value);
  void compress(const GradientCode& c, const GradientDraw& d, const float* x, float* residual, std::uint8_t* packed);
  void compress_corrected(const GradientCode& c, const GradientDraw& d, float mu, const float* x, float factor,
                          float* momentum, float* residual, std::uint8_t* packed);
  void orthogonalise(std::int64_t rows, std::int64_t rank, double epsilon, float* x);
  void keep_rest(std::int64_t n, std::int64_t members, std::span<const Range> rest, const float* gradients,
                 float* residual);
  void decompress(const GradientCode& c, const GradientDraw& d, std::int64_t members, const std::uint8_t* packed,
                  float* x);

  // body(begin, end) on parts of [0, n).
  template <class Body>
  void parallel(std::int64_t n, std::int64_t grain, const Body& body) {
    pool_.ranges(n, grain, [&](std::int64_t begin, std::int64_t end, int) { body(begin, end); });
  }

 private:
  template <class U, class Give>
  void make_orthogonal(const Muon& o, const U& u, bool may_be_skipped, const Give& give);
  void newton_schulz(std::int64_t rows, std::int64_t cols, float* x, float* a, float* b, float* y);
  template <class Body>
  void over_channels(const BatchNormShape& s, const Body& body);
  void flash_tiles(const flash::Flash& flash, bool merge, float* out, float* logsumexp);
  void flash_key_tiles(const flash::Flash& flash, const float* d_out, const float* out, const float* logsumexp,
                       const flash::Gradients& to, bool add);
  // At least n floats of a worker's own, not initialised; valid until that worker's next request.
  float* scratch(int worker, std::int64_t n);
  // {cos, sin} pairs of the first `positions` positions and every pair of dimensions, kept for each head_dim and
  // rotation.
  const float* rope_table(std::int64_t positions, std::int64_t head_dim, const Rotation& rotation = {});

  ThreadPool pool_;
  std::vector<std::vector<float>> scratch_;
  struct RopeTable {
    std::int64_t positions = 0;
    std::vector<float> values;
  };
  std::map<std::pair<std::int64_t, Rotation>, RopeTable> rope_tables_;
};

}  // namespace rehearse::kernels::cpu
