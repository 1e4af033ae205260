// The CUDA device: one stream of a GPU, on which every call is queued. The kernels of a kind are in one .cu file each,
// as in kernels/cpu; matrix products are cuBLASLt's (gemm). Every kernel is deterministic: no floating-point atomics,
// and what is summed across threads or blocks is summed in an order that depends on the shape alone, not on the GPU.
//
// Calls only queue launches (no allocation, no synchronisation), so a stream that is being recorded into a Graph takes
// them too. What a call needs besides its operands lies in the device's workspace, which calls on the stream use one
// after another: it must not be used by another stream at the same time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace rehearse::kernels::cuda {

struct BlasApi;
struct SdpaApi;
class Blas;
class LibraryAttention;
struct BlasState;  // handles and chosen algorithms of cuBLASLt (gemm.h)

// Bytes of workspace of every device that performs or is timed: what cuBLASLt picks algorithms for
// (blas_workspace_bytes) and room for a bias that changes its type. One size for a compute capability, so that a
// calibration times the algorithms that are performed.
std::size_t device_workspace_bytes(int compute_capability_major);

class CudaDevice final : public Device {
 public:
  struct Options {
    bool tf32 = false;                  // fp32 matrix products may use the matrix units' 19-bit mode
    const BlasApi* blas_api = nullptr;  // cuBLASLt's functions; null: this machine's library (blas_api.h)
    // Until settle_products() the library's algorithms for each product are timed as it is called, which then waits for
    // the stream; after it the fastest is taken. False: always the library's first choice.
    bool measure_products = false;
    // Attention by cuDNN where it computes what our kernels do (library_attention.h).
    bool library_attention = false;
    const SdpaApi* sdpa_api = nullptr;  // cuDNN's functions; null: this machine's library
  };
  // `workspace` is device memory, device_workspace_bytes() where times matter: kernels adapt to what there is, and
  // cuBLASLt chooses by it. At least kLeastWorkspace is needed. `stream` and `workspace` outlive the device.
  static constexpr std::size_t kLeastWorkspace = std::size_t{4} << 20;
  CudaDevice(Stream& stream, Options options, void* workspace, std::size_t workspace_bytes);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  Stream& stream() const { return stream_; }
  // The matrix products of this device. Throws DeviceError if cuBLASLt cannot be loaded.
  Blas& blas();
  const Blas* blas_in_use() const;  // null before the first product
  void settle_products();
  const LibraryAttention* library_attention() const { return library_attention_.get(); }  // null: not asked for yet

  bool queues() const override { return true; }
  void gemm(const Gemm& shape, In a, In b, In bias, Out c) override;
  void gemm_gelu(const Gemm& shape, In a, In b, In bias, Out x, Out y) override;
  void gemm_gelu_backward(const Gemm& shape, In a, In b, In x, Out c) override;
  void gemm_bias_grad(const Gemm& shape, In a, In b, Out c, Out d_bias) override;
  void flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp) override;
  void flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                      const float* logsumexp, Out d_qkv) override;
  void context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In qkv, In kv,
                       Out out, float* logsumexp) override;
  void context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& dropout, In d_out, In qkv,
                        In kv, In out, const float* logsumexp, Out d_q, Out d_kv) override;
  void attention_scores(const AttentionShape& s, In qkv, Out scores) override;
  void attention_softmax(const AttentionShape& s, In scores, Out p) override;
  void attention_dropout(const AttentionShape& s, const DropoutSite& dropout, In p, Out d, std::uint8_t* mask) override;
  void attention_context(const AttentionShape& s, In d, In qkv, Out out) override;
  void attention_context_backward_probs(const AttentionShape& s, In d_out, In qkv, Out d_d) override;
  void attention_context_backward_value(const AttentionShape& s, In d_out, In d, Out d_qkv) override;
  void attention_dropout_backward(const AttentionShape& s, double probability, In d_d, const std::uint8_t* mask,
                                  Out d_p) override;
  void attention_softmax_backward(const AttentionShape& s, In d_p, In p, Out d_s) override;
  void attention_scores_backward_query(const AttentionShape& s, In d_s, In qkv, Out d_qkv) override;
  void attention_scores_backward_key(const AttentionShape& s, In d_s, In qkv, Out d_qkv) override;
  void norm_forward(bool rms, std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, In beta, Out y,
                    float* stats) override;
  void norm_backward_input(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats, In gamma,
                           In residual, Out dx) override;
  void norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                            Out d_gamma, Out d_beta) override;
  void activation_forward(Unary fn, std::int64_t n, In x, Out y) override;
  void activation_backward(Unary fn, std::int64_t n, In dy, In x, Out dx) override;
  void swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, In up, Out y) override;
  void swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, In up, Out d_gate_up) override;
  void weighted_swiglu_forward(std::int64_t rows, std::int64_t cols, In gate_up, const float* weights, Out y) override;
  void weighted_swiglu_backward(std::int64_t rows, std::int64_t cols, In dy, In gate_up, const float* weights,
                                Out d_gate_up, float* d_weights) override;
  void add(std::int64_t n, In a, In b, Out y) override;
  void accumulate(std::int64_t n, In x, Out y) override;
  void copy(std::int64_t n, In x, Out y) override;
  void copy_strided(const StridedCopy& s, In x, Out y) override;
  void fill(std::int64_t n, float value, Out y) override;
  void scale(std::int64_t n, float value, In x, Out y) override;
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
  void router_weights(const RouterShape& s, In logits, const std::int32_t* chosen, float* weights) override;
  void receive_rows(const ReceivedRows& s, const float* counts, std::int32_t* places, float* loads) override;
  void place_own_rows(const OwnRows& s, const std::int32_t* chosen, std::int32_t* places, float* loads) override;
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
  void conv_forward(const ConvShape& s, In x, In w, In bias, Out y) override;
  void conv_backward_input(const ConvShape& s, In dy, In w, Out dx) override;
  void conv_backward_weight(const ConvShape& s, In dy, In x, Out dw, Out d_bias) override;
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
  void adafactor_sums(std::int64_t n, std::span<const AdafactorTensor> tensors, In grad, const float* coefficient,
                      std::int64_t count, float* sums) override;
  void adafactor_squares(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                         const float* coefficient, const float* sums, float* means, float* squares) override;
  void adafactor_apply(std::int64_t n, const Adafactor& o, std::span<const AdafactorTensor> tensors, In grad,
                       const float* coefficient, const float* means, const float* squares, Out param,
                       float* master) override;
  void sum_squares(std::int64_t n, In x, float* sum) override;
  void count_targets(std::int64_t n, const std::int32_t* targets, float* counted) override;
  void mean_of_counted(const float* counted, float* loss) override;
  void clip_coefficient(double max_norm, const float* sum, const float* loss_scale, float* coefficient) override;
  void update_loss_scale(const LossScaleRule& rule, const float* coefficient, float* state) override;

 private:
  // The workspace as `count` elements of T, or a failed check that says how much is there.
  template <class T>
  T* workspace(std::int64_t count) const {
    return static_cast<T*>(workspace_of(static_cast<std::size_t>(count) * sizeof(T)));
  }
  void* workspace_of(std::size_t bytes) const;
  // With moments of 8 bits: `weights` are the master copy, or the parameter itself; `copy` is the parameter, or none.
  void adamw_codes(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out weights, Out copy,
                   Out exp_avg, Out exp_avg_sq);
  void sgd_codes(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out weights, Out copy, Out momentum);
  In bias_of_type(std::int64_t n, In bias, DType type);
  LibraryAttention& attention_by_library();
  void own_flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp);
  void own_flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                          const float* logsumexp, Out d_qkv);

  Stream& stream_;
  Options options_;
  void* workspace_;
  std::size_t workspace_bytes_;
  std::shared_ptr<BlasState> blas_;                      // made when first needed
  std::shared_ptr<LibraryAttention> library_attention_;  // the same
};

}  // namespace rehearse::kernels::cuda
