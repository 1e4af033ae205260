// A norm layer (LayerNorm or RMSNorm, as the model has): its parameters, what it keeps for backward, and its ops.
#pragma once

#include <string>

#include "sim/lower/model/eager_passes.h"
#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class NormLayer {
 public:
  NormLayer(const Context& context, RoleBuilder& builder, ParameterStore& parameters, std::string name)
      : NormLayer(context, builder, parameters, std::move(name), context.model().hidden, context.residual) {}
  // Of `cols` columns, within a branch: what comes in has the type of products too.
  static NormLayer within_branch(const Context& context, RoleBuilder& builder, ParameterStore& parameters,
                                 std::string name, std::int64_t cols) {
    return {context, builder, parameters, std::move(name), cols, context.compute};
  }

  void declare_parameters(int unit);
  // in [local_tokens, cols], hidden of context.residual unless said otherwise; out, of context.compute, and the
  // statistics live as `saved`. Returns out.
  BufferId declare_buffers(BufferId in, Lifetime saved) { return declare_buffers(in, saved, saved, context_.compute); }
  // With a lifetime and a type of its own for out: in 8 bits the same kernel casts; context.residual: nothing does, and
  // backward's gradient has that type too.
  BufferId declare_buffers(BufferId in, Lifetime saved, Lifetime out, DType out_type);
  // The type in which a norm may give what only 8-bit products read: Transformer Engine's LayerNormLinear casts in the
  // norm's kernel with delayed scaling, whose scale is known before.
  DType type_for_products(bool fp8) const {
    return fp8 && context_.delayed_scaling() && !casts() ? DType::e4m3 : context_.compute;
  }
  BufferId out() const { return out_; }

  // `into`: another buffer than out(), where a recomputation needs what is kept for backward alone; -1: out().
  void forward(BufferId into = -1);
  // Adds to the parameters' gradients and returns the input's gradient, plus `residual_gradient` unless that is -1 (in
  // the same kernel where the framework fuses it). `parts`: the gradient came as so many, which were added
  // before the tensor group shared the sum.
  BufferId backward(BufferId gradient, BufferId residual_gradient, int parts = 1);

 private:
  NormLayer(const Context& context, RoleBuilder& builder, ParameterStore& parameters, std::string name,
            std::int64_t cols, DType in_type)
      : context_(context),
        builder_(builder),
        parameters_(parameters),
        name_(std::move(name)),
        cols_(cols),
        in_type_(in_type) {}

  program::Norm shape(program::NormPart part, bool add_residual) const;
  void backward_weight(BufferId gradient);
  void takes_chain(EagerKernels (*chain)(std::int64_t)) const;
  bool zero_centered() const { return context_.model().zero_centered_norms; }
  bool casts() const { return in_type_ != context_.compute && !wide_out_; }

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  std::string name_;
  std::int64_t cols_;
  DType in_type_;
  bool wide_out_ = false;  // out has the type of what comes in
  ParamId gamma_ = -1, beta_ = -1;
  BufferId in_ = -1, stats_ = -1, out_ = -1;
};

}  // namespace rehearse::lower
