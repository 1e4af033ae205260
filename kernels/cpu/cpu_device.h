// The Device interface over the CPU's kernels, which know fp32 only. Operands of fp32 are handed on as they are; of a
// 16-bit operand the kernel sees an fp32 copy in memory of the device's own, and what it wrote there is rounded back.
// So a call in 16 bits is the fp32 call of the widened operands, rounded once. Element-wise kernels go in pieces that
// stay in the cache; tables of embeddings are copied by the rows that are used. Moments of 16 bits the optimizer's
// kernels widen themselves.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/device.h"
#include "kernels/state_space_calls.h"

namespace rehearse::kernels::cpu {

class CpuDevice final : public Device, public StateSpaceCalls {
 public:
  explicit CpuDevice(int threads) : threads_(threads), kernels_(threads) {}

  void gemm(const Gemm& shape, In a, In b, In bias, Out c) override;
  void flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp) override;
  void flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                      const float* logsumexp, Out d_qkv) override;
  void context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In qkv, In kv,
                       Out out, float* logsumexp) override;
  void context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In d_out, In qkv,
                        In kv, In out, const float* logsumexp, Out d_q, Out d_kv) override;
  void cached_attention(const AttentionShape& s, std::span<const CachedSequence> sequences, In qkv, Out out) override;
  void attention_scores(const AttentionShape& s, In qkv, Out scores) override;
  void cross_attention_scores(const AttentionShape& s, In q, In kv, Out scores) override;
  void attention_softmax(const AttentionShape& s, In scores, Out p) override;
  void attention_biased_softmax(const AttentionShape& s, In scores, In table, Out p) override;
  void attention_bias_gradient(const AttentionShape& s, In d_s, Out d_table) override;
  void attention_dropout(const AttentionShape& s, const DropoutSite& dropout, In p, Out d, std::uint8_t* mask) override;
  void attention_context(const AttentionShape& s, In d, In qkv, Out out) override;
  void attention_context_backward_probs(const AttentionShape& s, In d_out, In qkv, Out d_d) override;
  void attention_context_backward_value(const AttentionShape& s, In d_out, In d, Out d_qkv) override;
  void attention_dropout_backward(const AttentionShape& s, double probability, In d_d, const std::uint8_t* mask,
                                  Out d_p) override;
  void attention_softmax_backward(const AttentionShape& s, In d_p, In p, Out d_s) override;
  void attention_capped_softmax_backward(const AttentionShape& s, In d_p, In p, In scores, Out d_s) override;
  void attention_scores_backward_query(const AttentionShape& s, In d_s, In qkv, Out d_qkv) override;
  void attention_scores_backward_key(const AttentionShape& s, In d_s, In qkv, Out d_qkv) override;
  void norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta, Out y,
                    float* stats) override;
  void norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats, In gamma,
                           In residual, Out dx) override;
  void norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                            Out d_gamma, Out d_beta) override;
  void zero_centered_norm_forward(std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, Out y,
                                  float* stats) override;
  void zero_centered_norm_backward_input(std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                         In gamma, In residual, Out dx) override;
  void head_norm_forward(const HeadNormShape& s, In gamma_q, In gamma_k, Out qkv, Out raw, float* stats) override;
  void head_norm_backward_input(const HeadNormShape& s, In raw, const float* stats, In gamma_q, In gamma_k,
                                Out d_qkv) override;
  void head_norm_backward_weight(const HeadNormShape& s, In d_qkv, In raw, const float* stats, Out d_gamma_q,
                                 Out d_gamma_k) override;
  void activation_forward(Unary fn, std::int64_t n, In x, Out y) override;
  void activation_backward(Unary fn, std::int64_t n, In dy, In x, Out dx) override;
  void swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) override;
  void swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) override;
  void weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, const float* weights, Out y) override;
  void weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, const float* weights,
                                Out d_gate_up, float* d_weights) override;
  void geglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) override;
  void geglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) override;
  void attention_sinks(const AttentionShape& s, In sinks, Out out, float* logsumexp) override;
  void attention_sink_gradient(const AttentionShape& s, In d_out, In out, const float* logsumexp, In sinks,
                               Out d_sinks) override;
  void swiglu_oai_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, const float* weights,
                          Out y) override;
  void swiglu_oai_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, const float* weights,
                           Out d_gate_up, float* d_weights) override;
  void weighted_activation_forward(Unary fn, std::int64_t rows, std::int64_t cols, In x, const float* weights,
                                   Out y) override;
  void weighted_activation_backward(Unary fn, std::int64_t rows, std::int64_t cols, In dy, In x, const float* weights,
                                    Out dx, float* d_weights) override;
  void grouped_bias(const GroupedBiasShape& s, In bias, const float* loads, const float* weights, Out y) override;
  void grouped_bias_backward(const GroupedBiasShape& s, In dy, const float* loads, const float* weights,
                             Out d_bias) override;
  void grouped_bias_weights(const GroupedBiasShape& s, In dy, In bias, const float* loads, float* d_weights) override;
  void row_scale(std::int64_t rows, std::int64_t cols, In x, const float* weights, Out y) override;
  void row_scale_backward(std::int64_t rows, std::int64_t cols, In dy, In x, const float* weights, Out dx,
                          float* d_weights) override;
  void state_space(const StateSpace& s, std::span<const Out> reads, std::span<const Out> writes) override;
  void fp8_amax(std::int64_t n, In x, float* amax) override;
  void fp8_column_amax(std::int64_t rows, std::int64_t cols, In x, float* amax) override;
  void fp8_cast(const Fp8Layout& layout, In x, const Fp8Scale& scale, Out row, Out column) override;
  void fp8_widen(const Fp8Layout& layout, In x, Out y) override;
  void fp8_recast(const Fp8Layout& layout, In x, Out y) override;
  void fp8_transpose(std::int64_t rows, std::int64_t cols, In x, Out y) override;
  void norm_forward_fp8(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta,
                        const Fp8Scale& scale, Out y, float* stats) override;
  void fp8_update(std::int64_t n, std::int64_t updates, float* amax, float* history, float* window) override;
  void add(std::int64_t n, In a, In b, Out y) override;
  void accumulate(std::int64_t n, In x, Out y) override;
  void copy(std::int64_t n, In x, Out y) override;
  void copy_strided(const StridedCopy& s, In x, Out y) override;
  void fill(std::int64_t n, float value, Out y) override;
  void scale(std::int64_t n, float value, In x, Out y) override;
  void scale_rows(std::int64_t rows, std::int64_t cols, const float* factors, Out x) override;
  void bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, In x, In bias, In residual,
                        Out y, std::uint8_t* mask) override;
  void dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, In x, Out y, std::uint8_t* mask) override;
  void dropout_backward(std::int64_t n, double probability, In dy, const std::uint8_t* mask, Out dx) override;
  void bias_grad(std::int64_t rows, std::int64_t cols, In dy, Out d_bias) override;
  void add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position, In x,
                    In table, Out y) override;
  void position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position, In dy,
                     Out d_table) override;
  void rope(const AttentionShape& s, std::int64_t first_position, bool backward, Out qkv) override;
  void latent_heads(const LatentShape& s, std::int64_t first_position, In q, In kv, In k_rope, Out qkv) override;
  void latent_heads_backward(const LatentShape& s, std::int64_t first_position, In d_qkv, Out d_q, Out d_kv,
                             Out d_k_rope) override;
  void router_gate(const RouterShape& s, In logits, float* weights, std::int32_t* chosen) override;
  void router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads) override;
  void router_gate_backward(const RouterShape& s, double aux, const float* d_weights, In logits,
                            const std::int32_t* chosen, const float* loads, const float* loss_scale,
                            Out d_logits) override;
  void permute(const PermuteShape& s, In x, const std::int32_t* places, Out y) override;
  void unpermute(const PermuteShape& s, In y, const std::int32_t* places, const float* weights, Out out) override;
  void unpermute_backward(const PermuteShape& s, In d_out, In y, const std::int32_t* places, const float* weights,
                          Out d_y, float* d_weights) override;
  void grouped_gemm(const GroupedShape& s, In a, In b, const float* loads, Out c) override;
  void embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                         const std::int32_t* ids, In table, Out y) override;
  void embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row, In dy,
                          const std::int32_t* ids, Out d_table) override;
  void cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale, In logits,
                             const std::int32_t* targets, float* stats, float* loss) override;
  void cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                         In logits, float* max) override;
  void cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                             In logits, const std::int32_t* targets, const float* max, float* sums) override;
  void cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) override;
  void cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                              double scale, const float* loss_scale, In logits, const std::int32_t* targets,
                              const float* max, std::int64_t max_stride, const float* sum, std::int64_t sum_stride,
                              Out d_logits) override;
  void mse_forward(std::int64_t n, double scale, In x, const float* target, float* loss) override;
  void mse_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target, Out dx) override;
  void embedding_bags_forward(const BagShape& s, std::span<const BagTable> tables, const std::int32_t* ids,
                              Out y) override;
  void embedding_bags_backward(const BagShape& s, std::span<const BagTable> gradients, In dy,
                               const std::int32_t* ids) override;
  void embedding_bags_update(const BagShape& s, const SparseRule& rule, std::span<const BagTable> tables, In dy,
                             const std::int32_t* ids) override;
  void pairs_forward(const PairShape& s, In products, In x, Out y) override;
  void pairs_backward(const PairShape& s, In dy, Out d_products, Out dx) override;
  void bce_forward(std::int64_t n, double scale, In x, const float* target, float* loss) override;
  void bce_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target, Out dx) override;
  void conv_forward(const ConvShape& s, In x, In w, In bias, Out y) override;
  void conv_backward_input(const ConvShape& s, In dy, In w, Out dx) override;
  void conv_backward_weight(const ConvShape& s, In dy, In x, Out dw, Out d_bias) override;
  void max_pool_forward(const PoolShape& s, In x, Out y, std::int32_t* argmax) override;
  void max_pool_backward(const PoolShape& s, In dy, const std::int32_t* argmax, Out dx) override;
  void average_pool_forward(std::int64_t planes, std::int64_t pixels, In x, Out y) override;
  void average_pool_backward(std::int64_t planes, std::int64_t pixels, In dy, Out dx) override;
  void channel_scale_forward(std::int64_t planes, std::int64_t pixels, In x, In f, Out y) override;
  void channel_scale_backward(std::int64_t planes, std::int64_t pixels, In dy, In x, In f, Out dx, Out df) override;
  void batch_norm_sums(const BatchNormShape& s, In x, float* sums) override;
  void batch_norm_normalise(const BatchNormShape& s, In x, const float* sums, In gamma, In beta, Out y) override;
  void batch_norm_backward_sums(const BatchNormShape& s, In dy, In x, const float* sums, float* d_sums) override;
  void batch_norm_backward_weight(const BatchNormShape& s, const float* d_sums, Out d_gamma, Out d_beta) override;
  void batch_norm_backward_input(const BatchNormShape& s, In dy, In x, const float* sums, In gamma, const float* d_sums,
                                 Out dx) override;
  void pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                    std::int64_t window, In x, Out y, std::int32_t* argmax) override;
  void pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                     std::int64_t window, In dy, const std::int32_t* argmax, Out dx) override;
  void adamw(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out param, float* master, Out exp_avg,
             Out exp_avg_sq) override;
  void sgd(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out param, float* master,
           Out momentum) override;
  void adafactor(const Adafactor& o, In grad, const float* coefficient, Out param, float* master, float* row,
                 float* col) override;
  void muon(const Muon& o, In grad, const float* coefficient, Out param, float* master, float* momentum) override;
  void muon_momentum(const Muon& o, In grad, const float* coefficient, float* momentum, Out u) override;
  void muon_update(const Muon& o, In u, Out param, float* master) override;
  void muon_orthogonal(const Muon& o, In u, Out x) override;
  void muon_apply(const Muon& o, In x, const float* coefficient, Out param, float* master) override;
  void compress(const GradientCode& code, const GradientDraw& draw, In x, float* residual,
                std::uint8_t* packed) override;
  void compress_corrected(const GradientCode& code, const GradientDraw& draw, double mu, In x, const float* coefficient,
                          float* momentum, float* residual, std::uint8_t* packed) override;
  void orthogonalise(std::int64_t rows, std::int64_t rank, double epsilon, float* x) override;
  void keep_rest(std::int64_t n, std::int64_t members, std::span<const Range> rest, const float* gradients,
                 float* residual) override;
  void decompress(const GradientCode& code, const GradientDraw& draw, std::int64_t members, const std::uint8_t* packed,
                  Out x) override;
  void outer_mean(std::int64_t n, std::int64_t workers, const float* sum, Out param, float* master) override;
  void outer_difference(std::int64_t n, const float* value, const float* outer, float* difference) override;
  void outer_update(std::int64_t n, const Outer& o, const float* sum, float* outer, float* momentum, Out param,
                    float* master) override;
  void adafactor_sums(std::int64_t n, std::span<const AdafactorTensor> tensors, In grad, const float* coefficient,
                      std::int64_t count, float* sums) override;
  void adafactor_squares(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                         const float* coefficient, const float* sums, float* means, float* squares) override;
  void adafactor_apply(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                       const float* coefficient, const float* means, const float* squares, Out param,
                       float* master) override;
  void lamb_moments(std::int64_t n, const Lamb& o, std::span<const LambTensor> tensors, In grad,
                    const float* coefficient, In value, float* exp_avg, float* exp_avg_sq, float* u,
                    float* squares) override;
  void lamb_apply(std::int64_t n, const Lamb& o, std::span<const LambTensor> tensors, const float* u,
                  const float* squares, const float* coefficient, Out param, float* master) override;
  void sum_squares(std::int64_t n, In x, float* sum) override;
  void count_targets(std::int64_t n, const std::int32_t* targets, float* counted) override;
  void mean_of_counted(const float* counted, float* loss) override;
  void clip_coefficient(double max_norm, const float* sum, const float* loss_scale, float* coefficient) override;
  void update_loss_scale(const LossScaleRule& rule, const float* coefficient, float* state) override;

 private:
  friend class Widened;
  static constexpr std::size_t kOperands = 14;  // of steps_backward of sim/base/state_space.h

  // At least n floats for the operand of that number of the call under way, not initialised.
  float* scratch(std::size_t operand, std::int64_t n);
  void convert(std::int64_t n, In x, Out y);
  // body(begin, count) over [0, n): at once if all operands are fp32, else in pieces that stay in the cache.
  template <class Body>
  void in_pieces(std::int64_t n, bool all_fp32, const Body& body) const {
    const std::int64_t piece = all_fp32 ? n : std::int64_t{65536} * threads_;
    for (std::int64_t begin = 0; begin < n; begin += piece) body(begin, std::min(piece, n - begin));
  }

  int threads_;
  CpuKernels kernels_;
  std::array<HostVector<float>, kOperands> scratch_;
  std::vector<std::int32_t> rows_, row_ids_;  // of an embedding's table
};

// The operands of one call as fp32; what was written is rounded back when it goes out of scope.
class Widened {
 public:
  explicit Widened(CpuDevice& device) : device_(device) {}
  ~Widened();
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;

  const float* read(In x, std::int64_t n);
  float* write(Out y, std::int64_t n);   // all of it is written
  float* update(Out y, std::int64_t n);  // read too, or not written everywhere

 private:
  struct Written {
    float* from;
    Out to;
    std::int64_t n;
  };
  CpuDevice& device_;
  std::size_t operands_ = 0, writes_ = 0;
  std::array<Written, CpuDevice::kOperands> written_;
};

// Elements from the i-th on.
inline In from(In x, std::int64_t i) {
  return x ? In(static_cast<const std::byte*>(x.data) + i * size_of(x.type), x.type) : x;
}
inline Out from(Out y, std::int64_t i) {
  return y ? Out(static_cast<std::byte*>(y.data) + i * size_of(y.type), y.type) : y;
}
inline bool fp32(In x) {
  return x.type == DType::f32;
}

// make_cpu_device without the check of the machine's instruction set.
std::unique_ptr<Device> make_unchecked(int threads);

}  // namespace rehearse::kernels::cpu
