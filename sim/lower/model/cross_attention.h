// The branch of a decoder's block that attends to the encoder's output: queries of the block's own tokens, keys and
// values of the encoder's (Vaswani et al. 2017, arXiv 1706.03762, section 3.2.3), split over the tensor group by
// heads as attention.h's. No mask, and in T5 no bias of the scores.
#pragma once

#include <string>

#include "sim/lower/model/attention_core.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

class CrossAttention {
 public:
  // `prefix`: the block's name; `site` numbers the random draws of the core's dropout.
  CrossAttention(const UnitScope& scope, const std::string& prefix, int site, CrossMemory& memory);

  void declare_parameters();
  // input: the norm's output [local_tokens, hidden].
  void declare_buffers(BufferId input);
  // Returns the projection's output [local_tokens, hidden].
  BufferId forward();
  // The gradient of that -> the input's [local_tokens, hidden]; the memory's is added to its sum.
  BufferId backward(BufferId out_gradient);
  // Of the projection, which is added with the residual or in the product; -1: none.
  ParamId bias() const { return proj_b_; }

 private:
  std::int64_t width() const { return m_.attention_width() / c_.tensor; }

  UnitScope s_;
  const Context& c_;
  const model::Model& m_;
  CrossMemory& memory_;
  std::string prefix_, name_;
  TensorParallel tp_, memory_tp_;
  AttentionCore core_;
  ParamId q_w_ = -1, kv_w_ = -1, proj_w_ = -1, q_b_ = -1, kv_b_ = -1, proj_b_ = -1;
  BufferId input_ = -1, q_ = -1, kv_ = -1, out_ = -1;
};

}  // namespace rehearse::lower
