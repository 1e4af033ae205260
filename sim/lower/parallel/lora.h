// Low-rank adaptation (LoRA, Hu et al. 2021, arXiv 2106.09685). Beside a frozen product y = x W^T stands an adapter of
// two matrices, A [rank, in] and B [out, rank], which are trained: y += (alpha / rank) (x A^T) B^T. A begins as
// torch.nn.Linear's weights do, B as zeros, so the adapter begins by adding nothing (Hugging Face's peft,
// tuners/lora/layer.py). Forward and backward are the kernels that autograd makes of that sum: the adapter's products,
// the scaling and the addition are passes of their own.
//
// Over a tensor group of t ranks, of which p is one (tensor.h):
//
//   product           A               B               what a rank adds
//   column-parallel   whole           [out / t, rank]   s (x A^T) B_p^T to its own columns
//   row-parallel      [rank, in / t]   whole           s (x_p A_p^T) B^T to its partial sum, which the group adds up
//   whole             whole           whole           all, of its rows
//
// Each rank sees a part only of what a whole A or B is multiplied with in backward, so their gradients are summed over
// the tensor group, with sequence parallelism or without (ParameterStore::sums_over_tensor); but of a whole product
// only with it, where ranks have rows of their own. Nothing of width `rank` is sent. Megatron-Bridge (peft/utils.py,
// ParallelLinearAdapter) splits whole matrices too, A by its rank and B by its outputs, and gathers what they give: t
// times less work on them, for more transfers.
#pragma once

#include <map>
#include <string>

#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class LoraAdapters {
 public:
  // What backward reads lives as `saved`.
  LoraAdapters(const Context& context, RoleBuilder& builder, ParameterStore& parameters, Lifetime saved)
      : context_(context), builder_(builder), parameters_(parameters), saved_(saved) {}

  // Declares the adapter of the product with `weight`, of the shape and split over the tensor group that `spec` says:
  // its last dimension is the product's input. `name` names the product.
  void add(int unit, const std::string& name, ParamId weight, const ParamSpec& spec);
  bool has(ParamId weight) const { return adapters_.contains(weight); }

  // Nothing without an adapter: out [tokens, n] += what the adapter gives of `in` [tokens, k]. Here and below tokens
  // are as many as the buffers have.
  void forward(const std::string& name, ParamId weight, BufferId in, BufferId out);
  // Of out's gradient [tokens, n]: adds the adapter's part to the input's gradient [tokens, k] (-1: nobody asks for
  // it). Call it before weight_gradients.
  void backward(const std::string& name, ParamId weight, BufferId out_gradient, BufferId in_gradient);
  // The gradients of A and B. `in`: as forward had it.
  void weight_gradients(const std::string& name, ParamId weight, BufferId in);

 private:
  struct Adapter {
    ParamId a = -1, b = -1;
    std::int64_t in = 0, out = 0;                      // of this rank
    BufferId low = -1;                                 // in A^T [tokens, rank]
    BufferId scaled_gradient = -1, low_gradient = -1;  // of the current backward: s dy, and that of low
  };
  double scale() const;
  BufferId temporary(const std::string& name, std::int64_t tokens, std::int64_t width);
  std::int64_t rows_of(BufferId buffer, std::int64_t width) const { return builder_.buffer(buffer).elements() / width; }
  void add_to(const std::string& name, BufferId part, BufferId sum);

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  Lifetime saved_;
  std::map<ParamId, Adapter> adapters_;
};

}  // namespace rehearse::lower
