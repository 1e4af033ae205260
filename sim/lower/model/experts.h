// The experts of a block, between its norm and its residual (Shazeer et al. 2017, arXiv 1701.06538; Lepikhin et al.
// 2020, arXiv 2006.16668): the router's product, its choice for each token, the tokens' rows sorted by experts and
// brought to them, the experts' feed-forward layers as grouped products, and the way back, where a token's rows are
// added with their weights. Shared experts are one feed-forward layer next to them. With a capacity every expert
// has rows for so many tokens of each rank; without, the rows are all choices, and what a rank's experts get of other
// ranks' tokens is what the scenario says of their loads (sim/plan/expert_loads.h).
//
// Of recomputation op by op (plan::Recompute::ops) what ranks traded is kept, rows on both ways and their counts; the
// router's product, the choice, both orders of rows and the experts' products are made again, up to the last that
// backward reads: torchtitan keeps all_to_all_single and no _grouped_mm, counts no moe.router.gate among its products,
// and copies to the host, for which the first forward waited, are kept (pytorch/torchtitan@03a13843
// torchtitan/distributed/activation_checkpoint.py, _apply_op_sac; expert_parallel.py, ExpertParallel). Shared experts
// are as a dense layer's products (mlp.h).
//
// With a latent (model.expert_latent) a product makes it of each token before rows are sorted, and another makes the
// model's width of the sum of a token's rows, both with whole weights on every rank (Megatron-Core's moe_latent_size,
// fc1_latent_proj and fc2_latent_proj of megatron/core/transformer/moe/moe_layer.py). Router and shared experts see the
// tokens themselves. The sum is kept, or made again with all else.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sim/lower/model/feed_forward.h"
#include "sim/lower/model/mlp.h"
#include "sim/lower/parallel/experts.h"
#include "sim/lower/parallel/tensor.h"
#include "sim/lower/parallel/whole_products.h"

namespace rehearse::lower {

struct EagerKernels;

class ExpertBranch : public FeedForward {
 public:
  // `prefix`: the block's name.
  ExpertBranch(const UnitScope& scope, const std::string& prefix, std::int64_t layer);

  void declare_parameters() override;
  void declare_buffers(BufferId input) override;
  void input_made_again() override {
    if (shared_) shared_->input_made_again();
    if (latent_) latent_->made_again(input_);
  }
  void forward_to_activation(bool again) override;
  BufferId forward_from_activation(bool again) override;
  void restore_output() override;
  bool keeps_output() const override { return true; }
  BufferId backward(BufferId out_gradient, bool input_gradient) override;
  bool trains() const override { return !c_.scenario.training.lora() || adapts_up() || adapts_down(); }
  ParamId bias() const override { return -1; }

 private:
  // Of the tokens that this rank routes.
  std::int64_t tokens() const { return c_.local_tokens; }
  std::int64_t choices() const { return tokens() * m_.experts_per_token; }
  std::int64_t capacity() const { return m_.capacity_factor > 0 ? m_.expert_capacity(tokens()) : 0; }
  bool counted() const { return capacity() == 0; }
  // All ranks' rows are here, of which own experts take theirs: nothing is sorted before it is sent.
  bool gathers() const { return exchange_.gathers_all(); }
  bool sorts_here() const { return exchange_.sources() == 1 || gathers(); }
  // Of this rank's tokens, sorted by experts; of all ranks' tokens for this rank's experts.
  std::int64_t rows() const { return counted() ? choices() : m_.experts * capacity(); }
  std::int64_t expert_rows() const {
    return counted() ? exchange_.arrived() : rows() / c_.plan().expert * exchange_.sources();
  }
  std::int64_t width() const { return m_.expert_ffn_hidden / c_.expert_tensor; }
  // Of what the first product gives.
  std::int64_t up_width() const { return m_.ffn_inputs() * width(); }
  // Of the rows that experts take and give.
  std::int64_t columns() const { return m_.expert_columns(); }
  bool balanced() const { return m_.aux_loss > 0; }
  // Without sequence parallelism every rank of a tensor group routes the same tokens, and its experts' parts of the
  // outputs are summed after.
  bool summed_over_tensor() const { return c_.groups.tensor >= 0 && !c_.sequence_parallel; }

  program::Router router(program::RouterPart part) const;
  program::Permute permute(program::PermutePart part) const;
  program::GroupedGemm grouped(program::GroupedPart part, std::int64_t n, std::int64_t k) const;
  // Of a forward alone: those that any token is expected to choose.
  double expected_experts() const;
  std::vector<Operand> with_loads(std::vector<Operand> reads) const;
  // How many rows each of this rank's experts has, of all that came.
  BufferId group_loads() const { return exchange_.counts() ? exchange_.loads() : loads_; }
  BufferId workspace(const std::string& name, std::vector<std::int64_t> shape);
  BufferId expert_activation(const std::string& name, std::int64_t cols, Lifetime lifetime, DType type);
  BufferId expert_activation(const std::string& name, std::int64_t cols, Lifetime lifetime) {
    return expert_activation(name, cols, lifetime, c_.compute);
  }
  BufferId expert_workspace(const std::string& name, std::int64_t cols);
  // Of the tokens' rows a gradient or sum [tokens, width] that all ranks have terms of; `all` itself if none has.
  BufferId own_sums(const std::string& name, BufferId all, std::int64_t width, Lifetime lifetime = Lifetime::slot) {
    return gathers() ? exchange_.scatter_sums(name, all, width, lifetime) : all;
  }
  // Low-rank adaptation (lora.h) of experts, each with an adapter of its own, whose products are grouped as the
  // experts' own are (meta-pytorch/torchtune torchtune/modules/moe/experts.py, LoRAGroupedExperts; Megatron-Bridge's
  // share_expert_adapters: false); expert_adapters.cpp.
  struct Adapter {
    ParamId a = -1, b = -1;                            // [experts, rank, in], [experts, out, rank]
    BufferId low = -1;                                 // rows A^T [expert_rows, rank]
    BufferId scaled_gradient = -1, low_gradient = -1;  // of the current backward
  };
  bool adapts_up() const { return c_.adapts(&model::Adapters::fc1); }
  bool adapts_down() const { return c_.adapts(&model::Adapters::fc2); }
  void declare_adapters();
  // out [expert_rows, n] += what the adapters give of `in` [expert_rows, k]; nothing without them.
  void adapter_forward(const std::string& what, Adapter& adapter, BufferId in, BufferId out, std::int64_t n,
                       std::int64_t k);
  // Adds their part to the gradient of `in` (-1: nobody asks for it), and to those of their matrices.
  void adapter_backward(const std::string& what, Adapter& adapter, BufferId d_out, BufferId in, BufferId d_in,
                        std::int64_t n, std::int64_t k);
  BufferId scaled(const std::string& name, BufferId from, BufferId to, std::int64_t n);
  // The forward product of rows `in` [expert_rows, k] with an expert's weight.
  void product(const std::string& what, BufferId in, ParamId weight, BufferId out, std::int64_t n, std::int64_t k);
  void product_in_16_bits(const std::string& name, BufferId in, ParamId weight, BufferId out, std::int64_t n,
                          std::int64_t k);
  // Of the grouped product that was added last.
  void takes_launches();
  // Whether activations and their casts are made inside products (plan.fused_experts).
  bool in_product() const { return fp8_.on() && c_.plan().fused_experts; }
  void is_cast_in_product();
  // Clamps of swiglu_oai that are kernels of their own, beside the activation's that was added last.
  void clamps_apart(bool backward);
  void route(bool again);
  // Rows go to experts, and their gradients, in 8 bits (training.fp8_dispatch).
  bool sends_eight_bits() const { return fp8_.on() && c_.scenario.training.fp8_dispatch && !sorts_here(); }
  // Of the experts' activations: what goes in is kept in 8 bits; what comes out is not kept (both, for backward).
  bool keeps_eight_bits() const { return fp8_.on() && c_.scenario.training.fp8_activation_input && !s_.recomputes(); }
  bool remakes_activation() const {
    const bool read = !c_.scenario.training.lora() || adapts_down();
    return c_.plan().recompute_expert_activation && !s_.recomputes() && read;
  }
  bool weighs_here() const { return c_.plan().weigh_in_experts && !weighs_inputs(); }
  // Tokens are multiplied by their scores before they are sent, and outputs are not (model.weigh_expert_inputs).
  bool weighs_inputs() const { return m_.weigh_expert_inputs; }
  // Whether the outputs come back as they are added.
  bool adds_as_they_come() const { return weighs_here() || weighs_inputs(); }
  // Biases of products, an expert's each (model.bias); expert_biases.cpp. Where experts are split over a tensor group
  // the parts of the second product are summed after, and each rank adds its share of the whole bias.
  void declare_biases();
  program::GroupedBias grouped_bias(const std::string& what, program::GroupedBiasPart part, std::int64_t n) const;
  ParamId bias_of(const std::string& what) const { return what == "up" ? up_b_ : down_b_; }
  // y [expert_rows, n], of the product `what`, += its bias; nothing without one.
  void add_bias(const std::string& what, BufferId y, std::int64_t n);
  // Adds to the bias's gradient.
  void bias_backward(const std::string& what, BufferId dy, std::int64_t n);
  // Of the weights that multiply the second product's bias too; d_down is the gradient behind it.
  void bias_weights_backward(BufferId d_down);
  // Whether biases are added expert by expert, a kernel each (FrameworkProfile).
  bool adds_each_bias(const program::GroupedBias& bias) const;
  void takes(const EagerKernels& chain);  // the op before takes these kernels in the place of one
  // Tokens' rows as they are sent: themselves, or a copy in 8 bits.
  BufferId as_sent(const std::string& name, BufferId rows);
  // [rows of choices, width] of tokens' rows, sorted by experts.
  BufferId sorted(const std::string& name, BufferId tokens, Lifetime lifetime);
  void sort_weights();
  // Rows sorted by this rank's experts, of `rows`, those of its tokens.
  void bring(BufferId rows, bool again, const std::function<void()>& beside);
  // The experts' outputs as rows of this rank's tokens.
  void bring_back(bool again);
  // [tokens, columns()], the sums of tokens' rows that came back.
  BufferId summed_rows();
  // Of experts in a latent: [tokens, hidden] of a sum of rows; the gradient of that sum, and of the tokens.
  void declare_latent();
  BufferId from_latent();
  BufferId from_latent_backward(BufferId d_out);
  BufferId to_latent_backward(BufferId d_latent);
  void activate();
  void restore_activation();
  BufferId activation_backward(BufferId d_act);
  // Adds the gradients of the product's weights and adapter, and gives that of `in`; -1 without `input_gradient`.
  BufferId product_backward(const std::string& what, ParamId weight, Adapter& adapter, BufferId d_out, BufferId in,
                            std::int64_t n, std::int64_t k, bool input_gradient);
  BufferId summed_weights(BufferId d_weights);
  // Of the weights' gradients, as rows of experts have them.
  BufferId weights_backward(BufferId d_row_weights);
  // `beside`, `beside_back`: add what is computed while gradients are on their way to the experts, and back.
  // -1 without `input_gradient`.
  BufferId backward_experts(BufferId d_rows, bool input_gradient, const std::function<void()>& beside = {},
                            const std::function<void()>& beside_back = {});
  // plan.overlap_shared_experts.
  bool overlaps_shared() const { return shared_ && c_.plan().overlap_shared_experts && exchange_.sources() > 1; }
  BufferId backward_router(BufferId d_weights);
  BufferId sum(const std::string& name, BufferId a, BufferId b);

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string prefix_, name_;
  TensorParallel tp_;
  Fp8Operands fp8_;
  ExpertExchange exchange_;
  std::optional<MlpBranch> shared_;
  std::optional<WholeProducts> latent_;
  WholeProducts::Weight to_latent_, from_latent_;
  BufferId latent_sum_ = -1;  // [tokens, expert_latent], which the way back to the model's width reads
  ParamId router_w_ = -1, up_w_ = -1, down_w_ = -1;
  ParamId router_b_ = -1, up_b_ = -1, down_b_ = -1;
  BufferId weighed_ = -1;  // [tokens, hidden], what is sent in the input's place where that is multiplied by scores
  Adapter up_adapter_, down_adapter_;
  // What the router chose: [tokens, experts_per_token], and of each expert how often; loads_ summed over the ranks that
  // share the micro-batch's tokens.
  BufferId input_ = -1, logits_ = -1, weights_ = -1, chosen_ = -1, places_ = -1, loads_ = -1, all_loads_ = -1;
  OpRef loads_summed_;
  // Of all ranks' tokens, where these are gathered: the weights, and the places of own experts' rows.
  BufferId all_weights_ = -1, all_places_ = -1;
  BufferId weights() const { return gathers() ? all_weights_ : weights_; }
  BufferId places() const { return gathers() ? all_places_ : places_; }
  // What the trade gave, and the weights that came along, where they are kept and what follows of them is not.
  BufferId traded_ = -1, traded_weights_ = -1;
  BufferId brought_ = -1, up_ = -1, activation_ = -1;  // of this rank's experts
  BufferId narrow_up_ = -1, row_weights_ = -1, d_row_weights_ = -1;
  BufferId out_ = -1;  // rows of this rank's tokens, back from the experts
};

}  // namespace rehearse::lower
