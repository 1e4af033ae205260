// The way into multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1): queries, keys and values
// of this rank's heads, packed as AttentionCore has them, from the norm's output. A product down to the latent of
// queries and one to that of keys and values, which also gives the rotated columns that all heads' keys share; a norm
// of each latent; a product up from each; rotation and packing in one kernel, as Megatron-Core's fused ones do it
// (megatron/core/fusions/fused_mla_yarn_rope_apply.py). Frameworks that lack it move queries, keys and values several
// times more, which is left out.
//
// Over the tensor group as in Megatron-Core's MLASelfAttention (megatron/core/transformer/multi_latent_attention.py):
// the products down are on every rank with the whole weights, with sequence parallelism each on its own rows; the
// products up are column-parallel, by heads, and gather the latents, as the shared columns of keys are gathered.
// Without sequence parallelism the gradient of these columns, a sum over the heads, is all-reduced.
//
// Kept for backward: both latents before and after their norms, and the packed heads; what a product up gives lives in
// a slot. With plan.recompute_latent the latents before their norms and the shared columns alone are kept, and the rest
// is made again before the core's backward, as Megatron-Core's recompute module mla_up_proj does.
//
// Of recomputation op by op (plan::Recompute::ops) every second product is kept, in torchtitan's order of them
// (pytorch/torchtitan@03a13843 torchtitan/models/deepseek_v3/model/model.py, Attention.forward): down and up of
// queries, down and up of keys and values, the projection. With a latent of queries these are both products down, so
// that the same is kept and made again as with plan.recompute_latent; without, queries and the product up of keys and
// values are kept, and the latent is made again. The projection is the fifth, and is kept, or the fourth.
#pragma once

#include <string>

#include "sim/lower/model/norm.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"
#include "sim/lower/parallel/whole_products.h"

namespace rehearse::lower {

class LatentProjections {
 public:
  LatentProjections(const UnitScope& scope, const std::string& prefix, const std::string& name);

  void declare_parameters();
  // input: the norm's output [local_tokens, hidden]. `traded`: the heads are kept as ranks have traded them.
  void declare_buffers(BufferId input, bool traded);
  // Backward makes the input again before it reads it.
  void input_made_again() {
    down_.made_again(input_);
    if (!queries_from_latent()) tp_.made_again(input_);
  }
  // The input -> qkv [tokens, own heads, 2 head_dim + v_head_dim].
  void forward(BufferId qkv);
  // The same in backward, from what is kept; with plan.recompute_latent, unless all of the layer was made again.
  bool makes_again() const { return c_.plan().recompute_latent && !s_.recomputes(); }
  void forward_again(BufferId qkv);
  // Of recomputation op by op: the same with all else that backward reads of what is not kept.
  void restore(BufferId qkv);
  // Whether its products are four, else three.
  bool queries_from_latent() const { return m_.q_lora_rank > 0; }
  // The gradient of that -> the input's gradient [local_tokens, hidden]; -1 without `input_gradient`, where adapters
  // alone are trained.
  BufferId backward(BufferId d_qkv, bool input_gradient);
  // Whether it has parameters that are trained.
  bool trains() const { return !c_.scenario.training.lora() || adapts(); }

 private:
  // Each of its products has an adapter then (lora.h), as with Hugging Face's peft and target_modules all-linear.
  bool adapts() const { return c_.adapts(&model::Adapters::qkv); }
  WholeProducts::Weight add_down(const std::string& name, std::int64_t width);
  std::int64_t query_width() const { return m_.heads * m_.head_dim / c_.tensor; }
  std::int64_t key_value_width() const { return m_.heads * (m_.qk_nope_head_dim + m_.v_head_dim) / c_.tensor; }
  std::int64_t down_width() const { return m_.kv_lora_rank + m_.qk_rope_head_dim; }
  program::LatentHeads heads(bool backward) const;
  // The kernels that rotate and copy in the place of what was added last, where they are not one.
  void rotates_apart(bool backward);
  BufferId workspace(const std::string& name, std::int64_t rows, std::int64_t width);
  // Between [rows, down_width] and its columns from `first` on, apart.
  void copy_columns(const std::string& name, BufferId from, BufferId to, std::int64_t first, std::int64_t width,
                    bool apart);
  void queries_down();
  void keys_values_down();
  // `kept`: what a product gave, and was kept, is not computed again.
  BufferId queries(bool kept);
  BufferId keys_values(bool kept);
  void pack(BufferId qkv, bool kept);
  BufferId queries_backward(BufferId d_q, bool input_gradient);
  BufferId keys_values_backward(BufferId d_kv, BufferId d_k_rope, bool input_gradient);

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string prefix_, name_;
  TensorParallel tp_;
  WholeProducts down_;
  NormLayer q_norm_, kv_norm_;
  WholeProducts::Weight q_down_, kv_down_;
  ParamId q_up_w_ = -1, kv_up_w_ = -1;
  BufferId input_ = -1, q_latent_ = -1, kv_latent_ = -1, k_rope_ = -1;
  BufferId q_ = -1, kv_ = -1;  // queries, keys and values not rotated, where they are kept
  bool traded_ = false;
};

}  // namespace rehearse::lower
