// The attention branch of a block, between its norm and its residual: the qkv product (column-parallel) and rope, or
// what gives both in latent attention (latent_attention.h), the core on this rank's heads, with context parallelism's
// exchanges around it, and the output projection (row-parallel).
//
// One key-value head (multi-query attention, Shazeer 2019, arXiv 1911.02150) has no parts for the ranks of a tensor
// group: each has the whole weight of key and value and computes both for its own queries, as PaLM's partitioning
// replicates them (Chowdhery et al. 2022, arXiv 2204.02311, section 4; Pope et al. 2022, arXiv 2211.05102,
// section 3.3). What a rank has of their gradient is of its queries, and the sum over the group is made with the step's
// other reductions. (Megatron-Core, from 0.16 on, splits these weights by rows and gathers what they give instead.)
#pragma once

#include <optional>
#include <string>

#include "sim/lower/model/attention_core.h"
#include "sim/lower/model/head_norms.h"
#include "sim/lower/model/latent_attention.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/context.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

class AttentionBranch {
 public:
  // How layers of one model differ. rope_base: of rotated positions, `scaled`: as the model's rope_scaling says,
  // `rotates`: whether there are any. chunk: model.attention_chunk.
  struct Kind {
    std::int64_t window = 0;
    double rope_base = 10000;
    bool scaled = false, rotates = true;
    std::int64_t chunk = 0;
  };
  // `prefix`: the block's name; `site` numbers the random draws of the core's dropout.
  AttentionBranch(const UnitScope& scope, const std::string& prefix, int site, const Kind& kind);
  AttentionBranch(const UnitScope& scope, const std::string& prefix, int site)
      : AttentionBranch(scope, prefix, site, Kind()) {}

  void declare_parameters();
  // input: the norm's output [local_tokens, hidden].
  void declare_buffers(BufferId input);
  // Backward makes the input again before it reads it.
  void input_made_again();
  // Where the projection's output goes, [local_tokens, hidden], in the place of a buffer of the slot.
  void set_output(BufferId output);
  // Returns the projection's output [local_tokens, hidden], with the bias where element-wise kernels are not fused.
  // `again`: what the micro-batch kept is not computed again.
  BufferId forward(bool again);
  // The gradient of that -> the input's gradient [local_tokens, hidden]; -1 without `input_gradient`, where adapters
  // alone are trained.
  BufferId backward(BufferId out_gradient, bool input_gradient);
  // Whether it has parameters that are trained.
  bool trains() const { return trains_first() || tp_.trains(proj_w_); }
  // Of the projection, which is added with the residual or in the product; -1: none.
  ParamId bias() const { return proj_b_; }

 private:
  bool trains_first() const { return latent_ ? latent_->trains() : tp_.trains(qkv_w_); }
  std::int64_t qkv_width() const { return c_.qkv_width(); }
  // Of queries, and of the key and the value that ranks share (Context::shares_key_head).
  std::int64_t query_width() const { return m_.heads / c_.tensor * m_.head_dim; }
  std::int64_t key_value_width() const { return 2 * m_.head_dim; }
  void declare_apart();
  void product_apart(BufferId in);
  BufferId backward_apart(BufferId d_qkv);
  // Between packed qkv and queries, or key and value, apart.
  void copy_apart(const std::string& what, BufferId from, BufferId to, bool keys, bool packs);
  std::int64_t width() const { return m_.attention_width() / c_.tensor; }
  void rope(bool backward, BufferId qkv);
  void forward_core();
  // Of recomputation op by op: whether the projection's output is kept.
  bool keeps_projected() const {
    return s_.keeps_some() && (c_.groups.tensor >= 0 || (latent_ && latent_->queries_from_latent()));
  }
  BufferId forward_projection();
  void declare_narrow_output();
  void convert_output(bool back);

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  std::string prefix_, name_;
  TensorParallel tp_;
  HeadExchange heads_;
  AttentionCore core_;
  std::optional<LatentProjections> latent_;
  ParamId kv_w_ = -1, kv_b_ = -1;  // where they are apart; qkv_w_ and qkv_b_ are of queries then
  ParamId qkv_w_ = -1, qkv_b_ = -1, proj_w_ = -1, proj_b_ = -1;
  BufferId input_ = -1, qkv_ = -1, out_ = -1;
  double rope_base_;
  bool scaled_angles_, rotates_;
  HeadNorms head_norms_;
  BufferId output_ = -1;                    // the projection's, where it is one of the layer's buffers
  BufferId narrow_out_ = -1;                // what backward has of it (training.e5m6_attention_output)
  BufferId core_qkv_ = -1, core_out_ = -1;  // as the core has them: these, or all tokens of some heads
};

}  // namespace rehearse::lower
