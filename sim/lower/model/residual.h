// What ends each branch of a block: the branch's output, with its bias and dropout, is added to the residual stream.
#pragma once

#include <string>

#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class Residual {
 public:
  // `prefix` is the block's name, `branch` "attention" or "mlp"; `site` numbers the dropout's random draws.
  Residual(const Context& context, RoleBuilder& builder, ParameterStore& parameters, std::string prefix,
           const std::string& branch, int site)
      : context_(context),
        builder_(builder),
        parameters_(parameters),
        prefix_(std::move(prefix)),
        branch_(branch),
        site_(site) {}

  // The dropout's mask; the sum [local_tokens, hidden], named `name`.
  void declare_mask(Lifetime saved);
  BufferId declare_sum(const std::string& name, Lifetime lifetime);

  // sum = residual + dropout(branch + bias), all [local_tokens, hidden]. Where element-wise kernels are not fused the
  // branch's last product has added the bias (Context::adds_bias_in_product); or, of a product that is split over the
  // tensor group, one of its ranks has (nanotron's TensorParallelRowLinear), or each a part of it (DTensor), which
  // costs nothing: the bias is added here, once, and takes no kernel of its own.
  void forward(BufferId branch, ParamId bias, BufferId residual, BufferId sum);
  // The gradient of the branch's output from that of the sum, in the type of products.
  BufferId backward(BufferId gradient);

 private:
  bool dropout() const { return context_.model().dropout > 0; }
  program::Elementwise row_op(program::ElementwiseFn fn) const;
  void forward_unfused(BufferId branch, BufferId residual, BufferId sum);
  std::string temp(const std::string& what) const { return builder_.here(prefix_ + "." + what); }

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  std::string prefix_, branch_;
  int site_;
  BufferId mask_ = -1;
};

}  // namespace rehearse::lower
