// See late_device.h.
#include "tests/gpu/ranks/late_device.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "execute/rank/expert_rows.h"

namespace rehearse {
namespace {

using namespace kernels;  // NOLINT(google-build-using-namespace): signatures as in device.h

class LateDevice final : public Device {
 public:
  LateDevice(LateGpu& gpu, execute::Gpu::Stream stream) : gpu_(gpu), stream_(stream), cpu_(make_cpu_device(1)) {}

  bool queues() const override { return true; }
  void gemm(const Gemm& shape, In a, In b, In bias, Out c) override {
    later([=, this] { cpu_->gemm(shape, a, b, bias, c); });
  }
  void flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp) override {
    later([=, this] { cpu_->flash_forward(s, dropout, qkv, out, logsumexp); });
  }
  void flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                      const float* logsumexp, Out d_qkv) override {
    later([=, this] { cpu_->flash_backward(s, dropout, d_out, qkv, out, logsumexp, d_qkv); });
  }
  void attention_scores(const AttentionShape& s, In qkv, Out scores) override {
    later([=, this] { cpu_->attention_scores(s, qkv, scores); });
  }
  void attention_softmax(const AttentionShape& s, In scores, Out p) override {
    later([=, this] { cpu_->attention_softmax(s, scores, p); });
  }
  void attention_dropout(const AttentionShape& s, const DropoutSite& dropout, In p, Out d,
                         std::uint8_t* mask) override {
    later([=, this] { cpu_->attention_dropout(s, dropout, p, d, mask); });
  }
  void attention_context(const AttentionShape& s, In d, In qkv, Out out) override {
    later([=, this] { cpu_->attention_context(s, d, qkv, out); });
  }
  void attention_context_backward_probs(const AttentionShape& s, In d_out, In qkv, Out d_d) override {
    later([=, this] { cpu_->attention_context_backward_probs(s, d_out, qkv, d_d); });
  }
  void attention_context_backward_value(const AttentionShape& s, In d_out, In d, Out d_qkv) override {
    later([=, this] { cpu_->attention_context_backward_value(s, d_out, d, d_qkv); });
  }
  void attention_dropout_backward(const AttentionShape& s, double probability, In d_d, const std::uint8_t* mask,
                                  Out d_p) override {
    later([=, this] { cpu_->attention_dropout_backward(s, probability, d_d, mask, d_p); });
  }
  void attention_softmax_backward(const AttentionShape& s, In d_p, In p, Out d_s) override {
    later([=, this] { cpu_->attention_softmax_backward(s, d_p, p, d_s); });
  }
  void attention_scores_backward_query(const AttentionShape& s, In d_s, In qkv, Out d_qkv) override {
    later([=, this] { cpu_->attention_scores_backward_query(s, d_s, qkv, d_qkv); });
  }
  void attention_scores_backward_key(const AttentionShape& s, In d_s, In qkv, Out d_qkv) override {
    later([=, this] { cpu_->attention_scores_backward_key(s, d_s, qkv, d_qkv); });
  }
  void norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta, Out y,
                    float* stats) override {
    later([=, this] { cpu_->norm_forward(rms, rows, cols, eps, x, gamma, beta, y, stats); });
  }
  void norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats, In gamma,
                           In residual, Out dx) override {
    later([=, this] { cpu_->norm_backward_input(rms, rows, cols, dy, x, stats, gamma, residual, dx); });
  }
  void norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                            Out d_gamma, Out d_beta) override {
    later([=, this] { cpu_->norm_backward_weight(rms, rows, cols, dy, x, stats, d_gamma, d_beta); });
  }
  void activation_forward(Unary fn, std::int64_t n, In x, Out y) override {
    later([=, this] { cpu_->activation_forward(fn, n, x, y); });
  }
  void activation_backward(Unary fn, std::int64_t n, In dy, In x, Out dx) override {
    later([=, this] { cpu_->activation_backward(fn, n, dy, x, dx); });
  }
  void swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) override {
    later([=, this] { cpu_->swiglu_forward(rows, cols, gate_up, up, y); });
  }
  void swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) override {
    later([=, this] { cpu_->swiglu_backward(rows, cols, dy, gate_up, up, d_gate_up); });
  }
  void weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, const float* weights, Out y) override {
    later([=, this] { cpu_->weighted_swiglu_forward(rows, cols, gate_up, weights, y); });
  }
  void weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, const float* weights,
                                Out d_gate_up, float* d_weights) override {
    later([=, this] { cpu_->weighted_swiglu_backward(rows, cols, dy, gate_up, weights, d_gate_up, d_weights); });
  }
  void add(std::int64_t n, In a, In b, Out y) override {
    later([=, this] { cpu_->add(n, a, b, y); });
  }
  void accumulate(std::int64_t n, In x, Out y) override {
    later([=, this] { cpu_->accumulate(n, x, y); });
  }
  void copy(std::int64_t n, In x, Out y) override {
    later([=, this] { cpu_->copy(n, x, y); });
  }
  void fill(std::int64_t n, float value, Out y) override {
    later([=, this] { cpu_->fill(n, value, y); });
  }
  void scale(std::int64_t n, float value, In x, Out y) override {
    later([=, this] { cpu_->scale(n, value, x, y); });
  }
  void bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, In x, In bias, In residual,
                        Out y, std::uint8_t* mask) override {
    later([=, this] { cpu_->bias_dropout_add(rows, cols, dropout, x, bias, residual, y, mask); });
  }
  void dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, In x, Out y,
               std::uint8_t* mask) override {
    later([=, this] { cpu_->dropout(rows, cols, site, x, y, mask); });
  }
  void dropout_backward(std::int64_t n, double probability, In dy, const std::uint8_t* mask, Out dx) override {
    later([=, this] { cpu_->dropout_backward(n, probability, dy, mask, dx); });
  }
  void bias_grad(std::int64_t rows, std::int64_t cols, In dy, Out d_bias) override {
    later([=, this] { cpu_->bias_grad(rows, cols, dy, d_bias); });
  }
  void add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position, In x,
                    In table, Out y) override {
    later([=, this] { cpu_->add_position(rows, cols, micro_batch, first_position, x, table, y); });
  }
  void position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch, std::int64_t first_position, In dy,
                     Out d_table) override {
    later([=, this] { cpu_->position_grad(rows, cols, micro_batch, first_position, dy, d_table); });
  }
  void context_forward(const AttentionShape& s, const kernels::ContextPart& part, const DropoutSite& dropout, In qkv,
                       In kv, Out out, float* logsumexp) override {
    later([=, this] { cpu_->context_forward(s, part, dropout, qkv, kv, out, logsumexp); });
  }
  void context_backward(const AttentionShape& s, const kernels::ContextPart& part, const DropoutSite& dropout, In d_out,
                        In qkv, In kv, In out, const float* logsumexp, Out d_q, Out d_kv) override {
    later([=, this] { cpu_->context_backward(s, part, dropout, d_out, qkv, kv, out, logsumexp, d_q, d_kv); });
  }
  void router_gate(const RouterShape& s, In logits, float* weights, std::int32_t* chosen) override {
    later([=, this] { cpu_->router_gate(s, logits, weights, chosen); });
  }
  void router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads) override {
    later([=, this] { cpu_->router_place(s, chosen, places, loads); });
  }
  void router_gate_backward(const RouterShape& s, double aux, const float* d_weights, In logits,
                            const std::int32_t* chosen, const float* loads, const float* loss_scale,
                            Out d_logits) override {
    later([=, this] { cpu_->router_gate_backward(s, aux, d_weights, logits, chosen, loads, loss_scale, d_logits); });
  }
  void router_weights(const RouterShape& s, In logits, const std::int32_t* chosen, float* weights) override {
    later([=] {  // of fp32 alone
      const auto* x = static_cast<const float*>(logits.data);
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const auto score = [&](std::int64_t k) {
          const float own = x[t * s.experts + chosen[t * s.top_k + k]];
          return s.sigmoid ? 1 / (1 + std::exp(-own)) : std::exp(own);
        };
        float sum = 0;
        for (std::int64_t k = 0; k < s.top_k; ++k) sum += score(k);
        for (std::int64_t k = 0; k < s.top_k; ++k) weights[t * s.top_k + k] = score(k) / sum;
      }
    });
  }
  void receive_rows(const ReceivedRows& s, const float* counts, std::int32_t* places, float* loads) override {
    program::Router r{program::RouterPart::receive, s.rows, s.experts, 1};
    r.sources = s.sources, r.slices = s.slices, r.own = s.own;
    const int place = static_cast<int>(s.first / s.own);
    later([=] { execute::receive_rows(r, place, counts, places, loads); });
  }
  void place_own_rows(const OwnRows& s, const std::int32_t* chosen, std::int32_t* places, float* loads) override {
    program::Router r{program::RouterPart::place, s.tokens, s.first + s.own, s.top_k};
    r.own = s.own, r.room = s.tokens * s.top_k;
    const int place = static_cast<int>(s.first / s.own);
    later([=]() mutable {
      for (std::int64_t i = 0; i < s.tokens * s.top_k; ++i)
        r.experts = std::max(r.experts, (chosen[i] / s.own + 1) * s.own);
      execute::place_own_rows(r, place, chosen, places, loads);
    });
  }
  void adafactor_sums(std::int64_t n, std::span<const AdafactorTensor> tensors, In grad, const float* coefficient,
                      std::int64_t count, float* sums) override {
    later([=, this, of = kept(tensors)] { cpu_->adafactor_sums(n, of, grad, coefficient, count, sums); });
  }
  void adafactor_squares(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                         const float* coefficient, const float* sums, float* means, float* squares) override {
    later(
        [=, this, of = kept(tensors)] { cpu_->adafactor_squares(n, o, of, grad, coefficient, sums, means, squares); });
  }
  void adafactor_apply(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                       const float* coefficient, const float* means, const float* squares, Out param,
                       float* master) override {
    later([=, this, of = kept(tensors)] {
      cpu_->adafactor_apply(n, o, of, grad, coefficient, means, squares, param, master);
    });
  }
  void permute(const PermuteShape& s, In x, const std::int32_t* places, Out y) override {
    later([=, this] { cpu_->permute(s, x, places, y); });
  }
  void unpermute(const PermuteShape& s, In y, const std::int32_t* places, const float* weights, Out out) override {
    later([=, this] { cpu_->unpermute(s, y, places, weights, out); });
  }
  void unpermute_backward(const PermuteShape& s, In d_out, In y, const std::int32_t* places, const float* weights,
                          Out d_y, float* d_weights) override {
    later([=, this] { cpu_->unpermute_backward(s, d_out, y, places, weights, d_y, d_weights); });
  }
  void grouped_gemm(const GroupedShape& s, In a, In b, const float* loads, Out c) override {
    later([=, this] { cpu_->grouped_gemm(s, a, b, loads, c); });
  }
  void latent_heads(const LatentShape& s, std::int64_t first_position, In q, In kv, In k_rope, Out qkv) override {
    later([=, this] { cpu_->latent_heads(s, first_position, q, kv, k_rope, qkv); });
  }
  void latent_heads_backward(const LatentShape& s, std::int64_t first_position, In d_qkv, Out d_q, Out d_kv,
                             Out d_k_rope) override {
    later([=, this] { cpu_->latent_heads_backward(s, first_position, d_qkv, d_q, d_kv, d_k_rope); });
  }
  void copy_strided(const StridedCopy& s, In x, Out y) override {
    later([=, this] { cpu_->copy_strided(s, x, y); });
  }
  void rope(const AttentionShape& s, std::int64_t first_position, bool backward, Out qkv) override {
    later([=, this] { cpu_->rope(s, first_position, backward, qkv); });
  }
  void embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                         const std::int32_t* ids, In table, Out y) override {
    later([=, this] { cpu_->embedding_forward(tokens, rows, cols, first_row, ids, table, y); });
  }
  void embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row, In dy,
                          const std::int32_t* ids, Out d_table) override {
    later([=, this] { cpu_->embedding_backward(tokens, rows, cols, first_row, dy, ids, d_table); });
  }
  void cross_entropy_forward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, double scale, In logits,
                             const std::int32_t* targets, float* stats, float* loss) override {
    later([=, this] { cpu_->cross_entropy_forward(rows, cols, valid_cols, scale, logits, targets, stats, loss); });
  }
  void cross_entropy_max(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                         In logits, float* max) override {
    later([=, this] { cpu_->cross_entropy_max(rows, cols, valid_cols, first_col, logits, max); });
  }
  void cross_entropy_exp_sum(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                             In logits, const std::int32_t* targets, const float* max, float* sums) override {
    later([=, this] { cpu_->cross_entropy_exp_sum(rows, cols, valid_cols, first_col, logits, targets, max, sums); });
  }
  void cross_entropy_loss(std::int64_t rows, double scale, const float* sums, float* loss) override {
    later([=, this] { cpu_->cross_entropy_loss(rows, scale, sums, loss); });
  }
  void cross_entropy_backward(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, std::int64_t first_col,
                              double scale, const float* loss_scale, In logits, const std::int32_t* targets,
                              const float* max, std::int64_t max_stride, const float* sum, std::int64_t sum_stride,
                              Out d_logits) override {
    later([=, this] {
      cpu_->cross_entropy_backward(rows, cols, valid_cols, first_col, scale, loss_scale, logits, targets, max,
                                   max_stride, sum, sum_stride, d_logits);
    });
  }
  void mse_forward(std::int64_t n, double scale, In x, const float* target, float* loss) override {
    later([=, this] { cpu_->mse_forward(n, scale, x, target, loss); });
  }
  void mse_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target, Out dx) override {
    later([=, this] { cpu_->mse_backward(n, scale, loss_scale, x, target, dx); });
  }
  void conv_forward(const ConvShape& s, In x, In w, In bias, Out y) override {
    later([=, this] { cpu_->conv_forward(s, x, w, bias, y); });
  }
  void conv_backward_input(const ConvShape& s, In dy, In w, Out dx) override {
    later([=, this] { cpu_->conv_backward_input(s, dy, w, dx); });
  }
  void conv_backward_weight(const ConvShape& s, In dy, In x, Out dw, Out d_bias) override {
    later([=, this] { cpu_->conv_backward_weight(s, dy, x, dw, d_bias); });
  }
  void pool_forward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                    std::int64_t window, In x, Out y, std::int32_t* argmax) override {
    later([=, this] { cpu_->pool_forward(batch, channels, height, width, window, x, y, argmax); });
  }
  void pool_backward(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                     std::int64_t window, In dy, const std::int32_t* argmax, Out dx) override {
    later([=, this] { cpu_->pool_backward(batch, channels, height, width, window, dy, argmax, dx); });
  }
  void adamw(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out param, float* master, Out exp_avg,
             Out exp_avg_sq) override {
    later([=, this] { cpu_->adamw(n, o, grad, coefficient, param, master, exp_avg, exp_avg_sq); });
  }
  void sgd(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out param, float* master,
           Out momentum) override {
    later([=, this] { cpu_->sgd(n, o, grad, coefficient, param, master, momentum); });
  }
  void adafactor(const Adafactor& o, In grad, const float* coefficient, Out param, float* master, float* row,
                 float* col) override {
    later([=, this] { cpu_->adafactor(o, grad, coefficient, param, master, row, col); });
  }
  void sum_squares(std::int64_t n, In x, float* sum) override {
    later([=, this] { cpu_->sum_squares(n, x, sum); });
  }
  void count_targets(std::int64_t n, const std::int32_t* targets, float* counted) override {
    later([=, this] { cpu_->count_targets(n, targets, counted); });
  }
  void mean_of_counted(const float* counted, float* loss) override {
    later([=, this] { cpu_->mean_of_counted(counted, loss); });
  }
  void clip_coefficient(double max_norm, const float* sum, const float* loss_scale, float* coefficient) override {
    later([=, this] { cpu_->clip_coefficient(max_norm, sum, loss_scale, coefficient); });
  }
  void update_loss_scale(const LossScaleRule& rule, const float* coefficient, float* state) override {
    later([=, this] { cpu_->update_loss_scale(rule, coefficient, state); });
  }

 private:
  static std::vector<AdafactorTensor> kept(std::span<const AdafactorTensor> tensors) {
    return {tensors.begin(), tensors.end()};
  }

  template <class Call>
  void later(Call call) {
    gpu_.kernel(stream_, call);
  }

  LateGpu& gpu_;
  execute::Gpu::Stream stream_;
  std::unique_ptr<Device> cpu_;
};

}  // namespace

std::unique_ptr<kernels::Device> make_late_device(LateGpu& gpu, execute::Gpu::Stream stream) {
  return std::make_unique<LateDevice>(gpu, stream);
}

}  // namespace rehearse
