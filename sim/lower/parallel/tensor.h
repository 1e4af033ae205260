// Linear layers split over the tensor group as Megatron-LM does it (Shoeybi et al. 2019, arXiv 1909.08053): a
// column-parallel layer splits its outputs, the row-parallel layer after it its inputs, so nothing is sent between the
// two. Forward of the row layer ends with an all-reduce, backward of the column layer too. With sequence parallelism
// (sequence.h) the activations between are shards of the sequence, and the column layer's backward gathers its input
// again instead of keeping it whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/lower/parallel/fp8.h"
#include "sim/lower/parallel/lora.h"
#include "sim/lower/parallel/parameters.h"
#include "sim/lower/parallel/sequence.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class TensorParallel {
 public:
  TensorParallel(const Context& context, RoleBuilder& builder, ParameterStore& parameters)
      : TensorParallel(context, builder, parameters, false, Lifetime::slot) {}
  // `fp8`: products are in 8 bits, and what backward reads of their inputs, or of adapters, lives as `saved`. `suffix`
  // tells copies of an input that another branch reads too apart.
  TensorParallel(const Context& context, RoleBuilder& builder, ParameterStore& parameters, bool fp8, Lifetime saved,
                 std::string suffix = "")
      : context_(context),
        builder_(builder),
        parameters_(parameters),
        sequence_(context, builder),
        saved_(saved),
        lora_(context, builder, parameters, saved),
        fp8_(context, builder, parameters, fp8, saved, std::move(suffix)) {}

  // Declares the adapter of the product with `weight`, which was declared as `spec` says (lora.h). What follows of
  // products does its part too.
  void add_adapter(int unit, const std::string& name, ParamId weight, const ParamSpec& spec) {
    lora_.add(unit, name, weight, spec);
  }

  // Backward makes the input `in` again before it reads it.
  void made_again(BufferId in) { fp8_.made_again(in); }

  // Whether the product with `weight` has something to train: the weight or its adapter.
  bool trains(ParamId weight) const { return parameters_.trains(weight) || lora_.has(weight); }

  // [local_tokens, width] -> [tokens, width]: the sequence's shards put together; the buffer itself without sequence
  // parallelism. `name` names the buffer and the op.
  BufferId gather_sequence(const std::string& name, BufferId shard, std::int64_t width);
  // The same of what products read, which may be in 8 bits.
  BufferId product_input(const std::string& name, BufferId shard, std::int64_t width, ParamId weight = -1);
  // Sum over the tensor group of partial [tokens, width]: in place, or scattered to [local_tokens, width], the buffer
  // `shard` if that is not -1.
  BufferId reduce_partial(const std::string& name, BufferId partial, std::int64_t width, BufferId shard = -1);

  // out [tokens, n] = in [tokens, k] W^T (+ bias).
  // `activated`: gelu(out) comes out of the same product; -1: does not.
  void product(const std::string& name, BufferId in, ParamId weight, ParamId bias, BufferId out, std::int64_t n,
               std::int64_t k, BufferId activated = -1);
  // The same with one of several equal parts of a weight's and a bias's rows.
  struct WeightPart {
    ParamId weight = -1, bias = -1;
    int part = 0, parts = 1;
  };
  void product_part(const std::string& name, BufferId in, const WeightPart& of, BufferId out, std::int64_t n,
                    std::int64_t k);
  // A row-parallel layer's product into `partial` [tokens, n], and its reduce_partial.
  BufferId reduced_product(const std::string& name, BufferId in, ParamId weight, ParamId bias, BufferId partial,
                           std::int64_t n, std::int64_t k, BufferId shard = -1);

  // Backward of a column-parallel layer with input `in` [local_tokens, k]: emits the weight (and bias) gradients, or
  // the adapter's, and returns the input's gradient [local_tokens, k], its collective during the weight-gradient
  // product with plan.overlap_tensor_backward; -1 without `input_gradient`, of frozen weights.
  BufferId column_backward(const std::string& name, BufferId out_gradient, BufferId in, ParamId weight, ParamId bias,
                           std::int64_t n, std::int64_t k, bool input_gradient = true);
  // The same of several products of one input, of 16 bits or more, whose input's gradient is the sum of theirs.
  struct Column {
    std::string name;
    BufferId out_gradient;
    ParamId weight, bias;
    std::int64_t n;
  };
  BufferId columns_backward(const std::string& name, BufferId in, std::int64_t k, const std::vector<Column>& columns);
  // Adds the sums of the columns of `gradient` [rows, cols] to a bias's gradient; nothing without a bias.
  void bias_gradient(const std::string& name, BufferId gradient, ParamId bias, std::int64_t cols);
  // Backward of a row-parallel layer: out_gradient [local_tokens, n] (after the bias), in [tokens, k]. Returns [tokens,
  // k]: the gradient of `in`, or where in = gelu(activated) that of `activated`, out of the same product.
  // -1 without `input_gradient`, of frozen weights.
  BufferId row_backward(const std::string& name, BufferId out_gradient, BufferId in, ParamId weight, ParamId bias,
                        std::int64_t n, std::int64_t k, BufferId activated = -1, bool input_gradient = true);

 private:
  // Whether the bias's gradient comes out of the product that gives the weight's.
  bool keeps_gathered() const { return sequence_.on() && context_.profile().keeps_gathered_input; }
  bool fuses_gradient(ParamId bias) const { return bias >= 0 && context_.plan().fuses_bias_gradients(); }
  // The same that products read by turns, where they do.
  BufferId gather_rows(const std::string& name, BufferId shard, std::int64_t width);
  // A product whose rows are tokens: one kernel, or where what it reads first arrives by turns, or what it writes is
  // sent so, one for each part of the rows.
  void product_of_rows(const std::string& name, const program::Gemm& gemm, const std::vector<Operand>& reads,
                       const std::vector<Operand>& writes);
  DType product_type(BufferId in) const {
    const DType type = builder_.buffer(in).dtype;
    return is_narrow(type) ? type : context_.compute;
  }
  BufferId frozen_column_backward(const std::string& name, BufferId out_gradient, BufferId in, ParamId weight,
                                  std::int64_t n, std::int64_t k, bool input_gradient);
  BufferId frozen_row_backward(const std::string& name, BufferId out_gradient, BufferId in, ParamId weight,
                               std::int64_t n, std::int64_t k, bool input_gradient);
  BufferId input_gradient_of(const std::string& name, BufferId out_gradient, ParamId weight, std::int64_t n,
                             std::int64_t k);
  // A column-parallel layer's input for its weight's gradient: gathered, then as that product reads it.
  BufferId input_again(const std::string& name, BufferId in, ParamId weight, std::int64_t k);

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  SequenceParallel sequence_;
  Lifetime saved_;
  GatheredInputs gathered_;
  LoraAdapters lora_;
  std::map<BufferId, BufferId> wide_;  // of an 8-bit copy, what it was cast from, which adapters read
  Fp8Operands fp8_;
};

}  // namespace rehearse::lower
