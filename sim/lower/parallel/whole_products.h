// Linear layers that every rank of a tensor group has with the whole weights, as Megatron-Core has those around latents
// (parallel_mode "duplicated" of Transformer Engine's linear layers): each rank multiplies the rows that it has, with
// sequence parallelism its own shard of the sequence, and nothing is sent. Gradients of weights are summed over the
// tensor group where its ranks have rows of their own (ParameterStore).
#pragma once

#include <string>

#include "sim/lower/parallel/fp8.h"
#include "sim/lower/parallel/lora.h"
#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class WholeProducts {
 public:
  // `fp8`: products are in 8 bits, and what backward reads of their inputs, or of adapters, lives as `saved`. `suffix`
  // tells copies of an input that another branch reads too apart.
  WholeProducts(const Context& context, RoleBuilder& builder, ParameterStore& parameters, bool fp8, Lifetime saved,
                std::string suffix)
      : context_(context),
        builder_(builder),
        parameters_(parameters),
        fp8_(context, builder, parameters, fp8, saved, std::move(suffix)),
        lora_(context, builder, parameters, saved) {}

  // Declares the adapter of the product with `weight`, which was declared as `spec` says (lora.h).
  void add_adapter(int unit, const std::string& name, ParamId weight, const ParamSpec& spec) {
    lora_.add(unit, name, weight, spec);
  }
  // Backward makes the input `in` again before it reads it.
  void made_again(BufferId in) { fp8_.made_again(in); }

  // A product's weight [n, k].
  struct Weight {
    ParamId id = -1;
    std::int64_t n = 0, k = 0;
  };
  // out [local_tokens, n] = in [local_tokens, k] W^T.
  void forward(const std::string& name, BufferId in, const Weight& weight, BufferId out);
  // Adds the gradients of the weight and of its adapter, and gives that of `in` [local_tokens, k]; -1 without
  // `input_gradient`, where adapters alone are trained.
  BufferId backward(const std::string& name, BufferId d_out, BufferId in, const Weight& weight, bool input_gradient);

 private:
  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  Fp8Operands fp8_;
  LoraAdapters lora_;
};

}  // namespace rehearse::lower
