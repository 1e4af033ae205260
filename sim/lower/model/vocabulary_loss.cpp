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
  if (softcap_ > 0) tanh_ = builder_.activation(named("logits.tanh"), context_.compute, shape(), kept);
  if (parallel()) {
    max_ = builder_.activation(named("loss.max"), DType::f32, {rows}, kept);
    sums_ = builder_.activation(named("loss.sums"), DType::f32, {rows, 2}, kept);
  } else {
    sums_ = builder_.activation(named("loss.stats"), DType::f32, {rows, 2}, kept);
  }
}

CrossEntropy VocabularyLoss::part(CrossEntropyPart part) const {
  const bool backward = part == CrossEntropyPart::backward;
  return {part,
          parallel(),
          context_.tokens,
          columns_,
          valid_,
          backward ? weight_ * share_ * static_cast<double>(context_.plan().workers()) : weight_,
          backward && context_.scales_loss(),
          !context_.profile().fused_loss && !chain_of_one()};
}

bool VocabularyLoss::chain_of_one() const {
  return !parallel() && !context_.profile().fused_loss && context_.profile().vocab_parallel_loss;
}

VocabularyLoss::Chain VocabularyLoss::chain() const {
  if (context_.profile().fused_loss) return Chain::none;
  if (context_.profile().vocab_parallel_loss) return Chain::in_place;
  return parallel() ? Chain::tensors : Chain::log_softmax;
}

std::vector<program::Operand> VocabularyLoss::with_scratch(std::vector<program::Operand> writes,
                                                           const std::string& name, int more) {
  const DType type = builder_.buffer(logits_).dtype;
  for (int i = 0; i < more; ++i)
    writes.push_back({builder_.workspace(builder_.here(name + ".scratch" + std::to_string(i)), type, shape())});
  return writes;
}

void VocabularyLoss::forward(BufferId sum, const std::function<void(BufferId)>& product) {
  const bool casts = builder_.buffer(logits_).dtype != context_.compute;
  const BufferId narrow = casts ? builder_.workspace(named("logits.product"), context_.compute, shape()) : logits_;
  product(narrow);
  if (softcap_ > 0) cap(narrow);
  if (casts)
    builder_.op(named("logits.cast"), Elementwise{ElementwiseFn::cast, elements()}, DType::f32, {{narrow}},
                {{logits_}});
  emit_loss(sum);
}

void VocabularyLoss::scale(const std::string& name, double by, BufferId logits) {
  Elementwise op{ElementwiseFn::scale, elements()};
  op.value = by;
  builder_.op(name, op, context_.compute, {{logits}}, {{logits}});
}

// A quotient, tanh, whose result autograd keeps, and a product, as transformers' Gemma 2 has them (modeling_gemma2.py).
void VocabularyLoss::cap(BufferId logits) {
  const program::Activation tanh{program::ActivationFn::tanh, false, context_.tokens, columns_};
  scale(named("logits.cap.divide"), 1 / softcap_, logits);
  builder_.op(named("logits.cap.tanh"), tanh, context_.compute, {{logits}}, {{tanh_}});
  Elementwise by{ElementwiseFn::scale, elements()};
  by.value = softcap_;
  builder_.op(named("logits.cap.multiply"), by, context_.compute, {{tanh_}}, {{logits}});
}

void VocabularyLoss::cap_backward(BufferId gradient) {
  const program::Activation tanh{program::ActivationFn::tanh, true, context_.tokens, columns_};
  const BufferId wide = builder_.workspace(builder_.here("d_" + named("logits.cap")), context_.compute, shape());
  scale(named("logits.cap.backward_multiply"), softcap_, gradient);
  builder_.op(named("logits.cap.backward_tanh"), tanh, context_.compute, {{gradient}, {tanh_}}, {{wide}});
  Elementwise by{ElementwiseFn::scale, elements()};
  by.value = 1 / softcap_;
  builder_.op(named("logits.cap.backward_divide"), by, context_.compute, {{wide}}, {{gradient}});
}

// Beside the logits there are: what log_softmax gives; the logits less their maximum; of DTensor's exp of these too.
void VocabularyLoss::emit_loss(BufferId sum) {
  const int copies = context_.profile().loss_keeps_logits ? 1 : 0;
  const int more = chain() == Chain::none          ? 0
                   : chain() == Chain::log_softmax ? 1
                   : chain() == Chain::tensors     ? 2
                                                   : copies;
  if (!parallel()) {
    builder_.op(named("loss.forward"), part(CrossEntropyPart::fused_forward), DType::f32,
                {{logits_}, {targets_}, {sum}}, with_scratch({{sums_}, {sum}}, named("loss"), more));
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
              with_scratch({{sums_}}, named("loss"), more));
  reduce.elements = 2 * context_.tokens;
  reduce.reduce = program::ReduceOp::sum;
  builder_.op(named("loss.sums.all_reduce"), reduce, DType::f32, {{sums_}}, {{sums_}}, StreamKind::tensor);
  builder_.op(named("loss.mean"), part(CrossEntropyPart::loss), DType::f32, {{sums_}, {sum}}, {{sum}});
}

// Beside what forward kept and the gradient: the zeros that nll_loss's gradient is made of; and exp of what was kept,
// and the sum of both. In place there is one tensor.
BufferId VocabularyLoss::backward() {
  const BufferId narrow = builder_.workspace(builder_.here("d_" + named("logits")), context_.compute, shape());
  const bool separate = chain() != Chain::none && builder_.buffer(logits_).dtype != context_.compute;
  BufferId gradient = narrow;
  if (separate && chain() == Chain::in_place) gradient = logits_;
  if (separate && chain() != Chain::in_place)
    gradient = builder_.workspace(builder_.here("d_" + named("logits") + ".wide"), DType::f32, shape());
  const int more = chain() == Chain::log_softmax ? 1 : chain() == Chain::tensors ? 2 : 0;
  std::vector<Operand> reads{{logits_}, {targets_}};
  if (parallel()) reads.push_back({max_});
  reads.push_back({sums_});
  if (parameters_.loss_scale() >= 0) reads.push_back({parameters_.loss_scale()});
  builder_.op(named("loss.backward"), part(CrossEntropyPart::backward), DType::f32, reads,
              with_scratch({{gradient}}, "d_" + named("logits"), more));
  // Zeros, exp, sum and product, each over all logits, where one kernel reads and writes them once.
  const std::int64_t all = elements() * size_of(builder_.buffer(logits_).dtype);
  if (chain() == Chain::tensors) builder_.takes_kernels(4, {3 * all, 3 * all});
  if (separate)
    builder_.op(named("logits.backward_cast"), Elementwise{ElementwiseFn::cast, elements()}, context_.compute,
                {{gradient}}, {{narrow}});
  if (softcap_ > 0) cap_backward(narrow);
  return narrow;
}

}  // namespace rehearse::lower
