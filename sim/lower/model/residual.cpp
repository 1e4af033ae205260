#include "sim/lower/model/residual.h"

namespace rehearse::lower {

using program::Elementwise;
using program::ElementwiseFn;

void Residual::declare_mask(Lifetime saved) {
  if (!dropout()) return;
  mask_ = builder_.activation(prefix_ + "." + branch_ + ".residual_mask", DType::u8,
                              {context_.local_tokens, context_.model().hidden}, saved);
}

BufferId Residual::declare_sum(const std::string& name, Lifetime lifetime) {
  return builder_.activation(prefix_ + "." + name, context_.residual, {context_.local_tokens, context_.model().hidden},
                             lifetime);
}

Elementwise Residual::row_op(ElementwiseFn fn) const {
  Elementwise op{fn, context_.local_tokens * context_.model().hidden, context_.model().hidden};
  op.dropout = context_.model().dropout;
  op.site = site_;
  op.rows_split_over_tensor = context_.sequence_parallel;
  return op;
}

void Residual::forward_unfused(BufferId branch, BufferId residual, BufferId sum) {
  const std::string name = branch_ + ".residual.forward";
  const std::vector<std::int64_t> row{context_.local_tokens, context_.model().hidden};
  if (mask_ >= 0) {
    const BufferId kept = builder_.workspace(temp(name + ".dropped"), context_.compute, row);
    builder_.op(prefix_ + "." + name + ".dropout", row_op(ElementwiseFn::dropout), context_.compute, {{branch}},
                {{kept}, {mask_}});
    branch = kept;
  }
  builder_.op(prefix_ + "." + name, Elementwise{ElementwiseFn::add, row[0] * row[1]}, context_.residual,
              {{branch}, {residual}}, {{sum}});
}

void Residual::forward(BufferId branch, ParamId bias, BufferId residual, BufferId sum) {
  const bool fused = context_.profile().fused_elementwise;
  if (!fused && (bias < 0 || context_.adds_bias_in_product())) return forward_unfused(branch, residual, sum);
  if (!fused) parameters_.cast_weight(bias);
  Elementwise op = row_op(ElementwiseFn::bias_dropout_add);
  op.bias = bias >= 0;
  std::vector<Operand> reads{{branch}}, writes{{sum}};
  if (bias >= 0) reads.push_back({parameters_.value(bias)});
  reads.push_back({residual});
  if (mask_ >= 0) writes.push_back({mask_});
  builder_.op(prefix_ + "." + branch_ + ".residual.forward", op, context_.compute, reads, writes);
  if (fused || mask_ < 0) return;
  const std::int64_t kept = op.elements * size_of(context_.compute);  // what dropout's own kernel writes, and add reads
  builder_.takes_kernels(2, {kept, kept});
}

BufferId Residual::backward(BufferId gradient) {
  const std::vector<std::int64_t> row{context_.local_tokens, context_.model().hidden};
  if (context_.residual != context_.compute) {
    const BufferId narrow = builder_.workspace(temp("d_" + branch_ + ".narrow"), context_.compute, row);
    builder_.op(prefix_ + "." + branch_ + ".backward_cast", Elementwise{ElementwiseFn::cast, row[0] * row[1]},
                context_.compute, {{gradient}}, {{narrow}});
    gradient = narrow;
  }
  if (mask_ < 0) return gradient;
  const BufferId out = builder_.workspace(temp("d_" + branch_), context_.compute, row);
  Elementwise op{ElementwiseFn::dropout_backward, row[0] * row[1]};
  op.dropout = context_.model().dropout;
  builder_.op(prefix_ + "." + branch_ + ".dropout_backward", op, context_.compute, {{gradient}, {mask_}}, {{out}});
  return out;
}

}  // namespace rehearse::lower
