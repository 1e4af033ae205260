// See policy.h.
#include "execute/reinforcement/policy.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using kernels::In;
using kernels::Out;
using program::CrossEntropyPart;

float* RowsOfResponses::fp32(const Out& operand) {
  REHEARSE_CHECK(operand.type == DType::f32, "an operand of {} where fp32 is needed", name_of(operand.type));
  return static_cast<float*>(operand.data);
}

std::int64_t RowsOfResponses::rows_together(std::int64_t rows) const {
  const std::int64_t together = scenario_.plan.micro_batch;
  const std::int64_t held = scenario_.training.seq_len / scenario_.plan.context;
  REHEARSE_CHECK(rows == together * held, "{} rows of {} sequences of {} tokens", rows, together, held);
  return together;
}

double RowsOfResponses::log_probability(const program::CrossEntropy& e, std::span<const Out> reads,
                                        std::span<const Out> writes, std::int64_t row, std::int32_t token) {
  if (e.part == CrossEntropyPart::loss) {  // sums of the exponentials of, and the target's, logit less the largest
    const float* const sums = fp32(reads[0]) + 2 * row;
    return static_cast<double>(sums[1]) - std::log(static_cast<double>(sums[0]));
  }
  const float* const stats = fp32(writes[0]) + 2 * row;
  float logit = 0;
  to_float(reads[0].type,
           static_cast<const std::byte*>(reads[0].data) + (row * e.cols + token) * size_of(reads[0].type), 1, &logit);
  return static_cast<double>(logit) - stats[0] - std::log(static_cast<double>(stats[1]));
}

void ScoringSteps::set(Rollout* to) {
  to_ = to;
  for (Response& response : to->sequences)
    (reference_ ? response.reference : response.chosen).assign(static_cast<std::size_t>(response.length), 0);
}

// Of ranks with a part of the vocabulary each, which all know it, the first one writes.
void ScoringSteps::perform(const program::Op& op, std::span<const Out> reads, std::span<const Out> writes,
                           const CallContext& c) {
  call_kernel(op, reads, writes, c);
  const auto* const e = std::get_if<program::CrossEntropy>(&op.shape);
  if (e == nullptr || (e->part != CrossEntropyPart::fused_forward && e->part != CrossEntropyPart::loss) ||
      c.tensor_coordinate != 0)
    return;
  each_token(c, e->rows, [&](std::int64_t row, const Response& of, std::size_t token, std::int64_t, std::int64_t) {
    Response& response = to_->sequences[static_cast<std::size_t>(&of - data_.rollout().sequences.data())];
    const std::int32_t id = of.tokens[static_cast<std::size_t>(data_.rollout().prompt_tokens) + token];
    (reference_ ? response.reference : response.chosen)[token] = log_probability(*e, reads, writes, row, id);
  });
}

UpdateSteps::UpdateSteps(const PhasePlan& plan, const RolloutData& data, const plan::Reinforcement& r)
    : RowsOfResponses(plan, data), r_(r) {
  const plan::Training& t = scenario_.training;
  factors_.assign(static_cast<std::size_t>(scenario_.cluster.gpus),
                  std::vector<float>(static_cast<std::size_t>(t.global_batch * t.seq_len)));
}

void UpdateSteps::perform(const program::Op& op, std::span<const Out> reads, std::span<const Out> writes,
                          const CallContext& c) {
  const auto* const e = std::get_if<program::CrossEntropy>(&op.shape);
  if (e == nullptr) return call_kernel(op, reads, writes, c);
  switch (e->part) {
    case CrossEntropyPart::row_max:
    case CrossEntropyPart::exp_sum:
      return call_kernel(op, reads, writes, c);
    case CrossEntropyPart::fused_forward: {
      float not_asked_for = 0;
      c.device.cross_entropy_forward(e->rows, e->cols, e->valid_cols, e->scale, reads[0],
                                     static_cast<const std::int32_t*>(reads[1].data), fp32(writes[0]), &not_asked_for);
      return add_losses(*e, reads, writes, fp32(writes[1]), c);
    }
    case CrossEntropyPart::loss:
      return add_losses(*e, reads, writes, fp32(writes[0]), c);
    case CrossEntropyPart::backward: {
      call_kernel(op, reads, writes, c);
      std::vector<float> rows(static_cast<std::size_t>(e->rows), 0.0F);
      each_token(c, e->rows, [&](std::int64_t row, const Response&, std::size_t, std::int64_t own, std::int64_t place) {
        rows[static_cast<std::size_t>(row)] =
            factors(c)[static_cast<std::size_t>(own * scenario_.training.seq_len + place)];
      });
      return c.device.scale_rows(e->rows, e->cols, rows.data(), writes[0]);
    }
  }
}

// Cross-entropy's gradient by the logits is that of minus the logarithm of the probability, times e.scale. A response's
// tokens count for one over their number, and sequences for one over theirs (arXiv 2402.03300, equation 3).
void UpdateSteps::add_losses(const program::CrossEntropy& e, std::span<const Out> reads, std::span<const Out> writes,
                             float* loss, const CallContext& c) {
  double total = 0;
  each_token(c, e.rows,
             [&](std::int64_t row, const Response& of, std::size_t token, std::int64_t own, std::int64_t place) {
               const std::int32_t id = of.tokens[static_cast<std::size_t>(data_.rollout().prompt_tokens) + token];
               const TokenLoss one = token_loss(r_, of, token, log_probability(e, reads, writes, row, id));
               const double weight = 1 / static_cast<double>(of.length * scenario_.training.global_batch);
               total += weight * one.value;
               factors(c)[static_cast<std::size_t>(own * scenario_.training.seq_len + place)] =
                   static_cast<float>(-weight * one.slope / e.scale);
             });
  *loss = static_cast<float>(static_cast<double>(*loss) + total);
}

}  // namespace rehearse::execute
