#include "sim/lower/model/vocabulary_loss.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::CrossEntropy;
using program::CrossEntropyPart;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

void VocabularyLoss::declare_buffers() {
  const Lifetime kept = Lifetime::micro_batch;
  const std::int64_t rows = context_.tokens;
  targets_ = builder_.activation(named("targets"), DType::i32, {rows}, kept);
  const DType type = context_.profile().fp32_logits ? DType::f32 : context_.compute;
  logits_ = builder_.activation(named("logits"), type, shape(), kept);
  if (parallel()) {
    max_ = builder_.activation(named("loss.max"), DType::f32, {rows}, kept);
    sums_ = builder_.activation(named("loss.sums"), DType::f32, {rows, 2}, kept);
  } else {
    sums_ = builder_.activation(named("loss.stats"), DType::f32, {rows, 2}, kept);
  }
}

CrossEntropy VocabularyLoss::part(CrossEntropyPart part) const {
  return {part,
          parallel(),
          context_.tokens,
          columns_,
          valid_,
          weight_,
          part == CrossEntropyPart::backward && context_.scales_loss(),
          !context_.profile().fused_loss && !chain_of_one()};
}

bool VocabularyLoss::chain_of_one() const {
  return !parallel() && !context_.profile().fused_loss && context_.profile().vocab_parallel_loss;
}

void VocabularyLoss::forward(BufferId sum, const std::function<void(BufferId)>& product) {
  const bool casts = builder_.buffer(logits_).dtype != context_.compute;
  const BufferId narrow = casts ? builder_.workspace(named("logits.product"), context_.compute, shape()) : logits_;
  product(narrow);
  if (casts)
    builder_.op(named("logits.cast"), Elementwise{ElementwiseFn::cast, elements()}, DType::f32, {{narrow}},
                {{logits_}});
  emit_loss(sum);
}

void VocabularyLoss::emit_loss(BufferId sum) {
  if (!parallel()) {
    builder_.op(named("loss.forward"), part(CrossEntropyPart::fused_forward), DType::f32,
                {{logits_}, {targets_}, {sum}}, {{sums_}, {sum}});
    // Maximum, subtraction, exp, sum and division, each over all logits, where one kernel reads them once
    // (CrossEntropyPart::row_max and exp_sum, sim/program/work.cpp).
    const std::int64_t all = elements() * size_of(builder_.buffer(logits_).dtype);
    if (chain_of_one()) builder_.takes_kernels(5, {4 * all, 3 * all});
    return;
  }
  Collective reduce{CollectiveKind::all_reduce, context_.groups.tensor, context_.tokens, program::ReduceOp::max};
  builder_.op(named("loss.max"), part(CrossEntropyPart::row_max), DType::f32, {{logits_}}, {{max_}});
  builder_.op(named("loss.max.all_reduce"), reduce, DType::f32, {{max_}}, {{max_}}, StreamKind::tensor);
  builder_.op(named("loss.exp_sum"), part(CrossEntropyPart::exp_sum), DType::f32, {{logits_}, {targets_}, {max_}},
              {{sums_}});
  reduce.elements = 2 * context_.tokens;
  reduce.reduce = program::ReduceOp::sum;
  builder_.op(named("loss.sums.all_reduce"), reduce, DType::f32, {{sums_}}, {{sums_}}, StreamKind::tensor);
  builder_.op(named("loss.mean"), part(CrossEntropyPart::loss), DType::f32, {{sums_}, {sum}}, {{sum}});
}

BufferId VocabularyLoss::backward() {
  const BufferId narrow = builder_.workspace(builder_.here("d_" + named("logits")), context_.compute, shape());
  const bool separate = !context_.profile().fused_loss && builder_.buffer(logits_).dtype != context_.compute;
  BufferId gradient = narrow;
  if (separate) gradient = builder_.workspace(builder_.here("d_" + named("logits") + ".wide"), DType::f32, shape());
  std::vector<Operand> reads{{logits_}, {targets_}};
  if (parallel()) reads.push_back({max_});
  reads.push_back({sums_});
  if (parameters_.loss_scale() >= 0) reads.push_back({parameters_.loss_scale()});
  builder_.op(named("loss.backward"), part(CrossEntropyPart::backward), DType::f32, reads, {{gradient}});
  if (separate)
    builder_.op(named("logits.backward_cast"), Elementwise{ElementwiseFn::cast, elements()}, context_.compute,
                {{gradient}}, {{narrow}});
  return narrow;
}

}  // namespace rehearse::lower
