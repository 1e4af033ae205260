// A norm layer (LayerNorm or RMSNorm, as the model has): its parameters, what it keeps for backward, and its ops.
#pragma once

#include <string>

#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class NormLayer {
 public:
  NormLayer(const Context& context, RoleBuilder& builder, ParameterStore& parameters, std::string name)
      : context_(context), builder_(builder), parameters_(parameters), name_(std::move(name)) {}

  void declare_parameters(int unit);
  // in [local_tokens, hidden] of context.residual; out, of context.compute, and the statistics live as `saved`. Returns
  // out.
  BufferId declare_buffers(BufferId in, Lifetime saved);
  BufferId out() const { return out_; }

  void forward();
  // Adds to the parameters' gradients and returns the input's gradient, plus `residual_gradient` unless that is -1 (in
  // the same kernel where the framework fuses it).
  BufferId backward(BufferId gradient, BufferId residual_gradient);

 private:
  program::Norm shape(program::NormPart part, bool add_residual) const;
  void backward_weight(BufferId gradient);
  bool casts() const { return context_.residual != context_.compute; }

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  std::string name_;
  ParamId gamma_ = -1, beta_ = -1;
  BufferId in_ = -1, stats_ = -1, out_ = -1;
};

}  // namespace rehearse::lower
