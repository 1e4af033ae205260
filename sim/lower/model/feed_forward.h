// The second branch of a block, between its norm and its residual: a feed-forward layer (mlp.h), or experts
// (experts.h).
#pragma once

#include "sim/lower/model/unit.h"

namespace rehearse::lower {

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  virtual void declare_parameters() = 0;
  // input: the norm's output [local_tokens, hidden].
  virtual void declare_buffers(BufferId input) = 0;
  // Backward makes the input again before it reads it.
  virtual void input_made_again() = 0;
  // Everything that backward reads up to the activation. `again`: what the micro-batch kept is not computed again.
  virtual void forward_to_activation(bool again) = 0;
  // Where the output goes in the place of a buffer of the slot; experts do not take it.
  void set_output(BufferId output) { output_ = output; }
  // The rest; returns the output [local_tokens, hidden]. `again`: as above.
  virtual BufferId forward_from_activation(bool again) = 0;
  // Of that what backward reads, again, where it keeps its output and a layer's recomputation stops there.
  virtual void restore_output() { forward_from_activation(true); }
  // Whether backward reads what is computed after the activation.
  virtual bool keeps_output() const { return false; }
  // The gradient of the output -> the input's gradient [local_tokens, hidden]; -1 without `input_gradient`, where
  // adapters alone are trained.
  virtual BufferId backward(BufferId out_gradient, bool input_gradient) = 0;
  // Whether it has parameters that are trained.
  virtual bool trains() const = 0;
  // Of the last product, which is added with the residual or in the product; -1: none.
  virtual ParamId bias() const = 0;

 protected:
  BufferId output_ = -1;
};

}  // namespace rehearse::lower
